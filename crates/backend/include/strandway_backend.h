/*
 * Strandway's simulated fabric for programs in C: a network backend for simulators of computers and training systems.
 *
 * A scenario file gives the fabric, the protocol, the faults, and any workload beside. The program posts messages
 * between hosts and sets timers, before the run and in answer to events. An answer starts at the same host at the same
 * instant, to the picosecond. The same calls give the same run, with the same digest.
 *
 * Events of one host come in order of time. Those of different hosts may differ from it by less than a link's latency;
 * a call that concerns another host than that of the event takes effect there one link latency later.
 *
 * Functions return SWB_OK or an error code; swb_last_error() has a line for people. A handle is a number that is never
 * used twice, so a dead one is an error code. A null or misaligned pointer where a value is needed is
 * SWB_ERROR_INVALID; a pointer that is neither has to lead to what its name says. One lab belongs to one thread at a
 * time; a process may have many labs.
 */
#ifndef STRANDWAY_BACKEND_H
#define STRANDWAY_BACKEND_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The version of this header. swb_abi_version() returns that of the library, which must be the same. */
#define SWB_ABI_VERSION 1u

/* Error codes. */
#define SWB_OK 0
#define SWB_ERROR_INVALID (-1)  /* a pointer, a host, a length, or the call at this time */
#define SWB_ERROR_NO_LAB (-2)   /* no lab has this handle */
#define SWB_ERROR_SCENARIO (-3) /* the scenario has problems: all are in the text */
#define SWB_ERROR_SYSTEM (-4)   /* a file cannot be written */
#define SWB_ERROR_INTERNAL (-5)

/* Kinds of events. */
#define SWB_SENT 1u     /* a message of this host is wholly acknowledged */
#define SWB_RECEIVED 2u /* a message to this host has arrived completely */
#define SWB_TIMER 3u    /* a timer of this host has expired */
#define SWB_FAILED 4u   /* a connection to the peer was given up: its messages stay unfinished */

/* Why a run ended. */
#define SWB_FINISHED 0u    /* all messages are acknowledged, and no timer is left */
#define SWB_TIME_LIMIT 1u  /* [run] time_limit of the scenario; without it 1,000 s */
#define SWB_INTERRUPTED 2u /* swb_stop() */
#define SWB_STALLED 3u     /* nothing is left to happen, and messages are unfinished */

typedef uint64_t swb_lab_t;

typedef struct swb_event {
    uint64_t at;      /* time of the event, in ps */
    uint64_t number;  /* SWB_SENT, SWB_RECEIVED: of the message, from swb_post(); SWB_TIMER: from swb_schedule() */
    uint64_t tag;     /* of the message */
    uint64_t bytes;   /* of the message */
    uint32_t kind;
    uint32_t host;    /* where it happened */
    uint32_t peer;    /* the other end of the message or of the connection */
    uint32_t reserved;
} swb_event;

typedef struct swb_result {
    uint64_t digest;      /* the same for the same run */
    uint64_t simulated;   /* time of the last event, in ps */
    uint64_t messages;    /* posted by the program */
    uint64_t packet_hops; /* packets times links */
    uint32_t end;         /* SWB_FINISHED and so on */
    uint32_t reserved;
} swb_result;

/* Answers an event, on the thread that called swb_run(). It must not throw. */
typedef void (*swb_handler)(void *context, const swb_event *event);

uint32_t swb_abi_version(void);

/* The text of the last call of this thread that failed; valid until the thread's next call that fails. */
const char *swb_last_error(void);

/* Opens a scenario file. Changes are dotted keys as for `strandway run --set`: "profile.name=uec". */
int32_t swb_open(const char *scenario, const char *const *changes, size_t changes_count, swb_lab_t *lab);

/* Closes a lab; not from its own handler. */
int32_t swb_close(swb_lab_t lab);

/* The number of hosts, and the rate of a host's NIC with all its planes, in bits per second. */
int32_t swb_hosts(swb_lab_t lab, uint32_t *hosts);
int32_t swb_rate(swb_lab_t lab, uint64_t *bits_per_second);

/* The time of the present event, in ps; before the run 0. */
int32_t swb_now(swb_lab_t lab, uint64_t *now);

/* Before the run: opens a connection from the start, as those of workloads are; else its first message opens it. */
int32_t swb_connect(swb_lab_t lab, uint32_t from, uint32_t to);

/* Posts a message: before the run, for time 0, or in answer to an event. An empty message has one byte. */
int32_t swb_post(swb_lab_t lab, uint32_t from, uint32_t to, uint64_t bytes, uint64_t tag, uint64_t *message);

/* Sets a timer, with a number of the caller's. One without delay expires right after the present event, before
 * anything else happens at its host. */
int32_t swb_schedule(swb_lab_t lab, uint32_t host, uint64_t delay, uint64_t number);

/* Runs until nothing is left to do, once. The handler is called for each event. */
int32_t swb_run(swb_lab_t lab, swb_handler handler, void *context);

/* Instead of swb_run(): runs to the next event. `any` is 0 after the last one. */
int32_t swb_next_event(swb_lab_t lab, swb_event *event, int32_t *any);

/* Asks the run to end soon with what it has measured. */
int32_t swb_stop(swb_lab_t lab);

/* After the run: its result, and a report as a file. The name's ending says which: .html, .json, .md, .txt, .csv (one
 * row per message) or .pcapng ([run] capture in the scenario). */
int32_t swb_result_of(swb_lab_t lab, swb_result *result);
int32_t swb_report(swb_lab_t lab, const char *file);

#ifdef __cplusplus
}
#endif

#endif
