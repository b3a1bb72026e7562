/*
 * Strandway's wire for programs in C: nodes on every network interface of a host, which encrypt, survive planes that
 * fail, and move bytes from memory to memory.
 *
 * Functions return SW_OK or an error code; sw_last_error() has a line for people. They may be called from any thread.
 * A handle is a number that is never used twice, so a dead one is an error code. A null or misaligned pointer where a
 * value is needed is SW_ERROR_INVALID; a pointer that is neither has to lead to what its name says.
 *
 * Memory that is registered has to be there until sw_memory_release() or sw_node_close() has returned SW_OK. While an
 * operation uses a range of it, or a peer may write into it, the program reads and writes that range only as its
 * events allow: after SW_RECEIVE_DONE, SW_READ_DONE and SW_WRITTEN it may read, after SW_SEND_DONE and SW_WRITE_DONE it may change.
 *
 * After fork() a child must not call these functions with nodes of its parent.
 */
#ifndef STRANDWAY_H
#define STRANDWAY_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The version of this header. sw_abi_version() returns that of the library, which must be the same. */
#define SW_ABI_VERSION 1u

/* Error codes. Their texts: sw_error_text(). */
#define SW_OK 0
#define SW_ERROR_INVALID (-1)
#define SW_ERROR_NO_NODE (-2)
#define SW_ERROR_NO_CONNECTION (-3)
#define SW_ERROR_NO_MEMORY (-4)
#define SW_ERROR_RANGE (-5)
#define SW_ERROR_BUSY (-6) /* take events, then try again */
#define SW_ERROR_IN_USE (-7)
#define SW_ERROR_OVERLAP (-8)
#define SW_ERROR_READ_ONLY (-9)
#define SW_ERROR_NOT_CONNECTED (-10)
#define SW_ERROR_TOO_LONG (-11)
#define SW_ERROR_CONFIG (-12)
#define SW_ERROR_SYSTEM (-13)
#define SW_ERROR_CLOSED_BY_PEER (-14)
#define SW_ERROR_CLOSED_HERE (-15)
#define SW_ERROR_PEER_SILENT (-16)
#define SW_ERROR_NO_ANSWER (-17)
#define SW_ERROR_WRONG_KEY (-18)
#define SW_ERROR_WRONG_VERSION (-19)
#define SW_ERROR_MISMATCH (-20)
#define SW_ERROR_PEER_FULL (-21)
#define SW_ERROR_REMOTE_ACCESS (-22)
#define SW_ERROR_VIOLATION (-23)
#define SW_ERROR_PAYLOAD (-24)
#define SW_ERROR_INTERNAL (-25)
#define SW_ERROR_VERSION (-26)
#define SW_ERROR_NO_KEY (-27)
#define SW_ERROR_NO_RIGHT (-28)
#define SW_ERROR_REMOTE_RANGE (-29)

/* Who moves packets: a thread of the node, or the threads that call sw_progress() and sw_wait(). */
#define SW_PROGRESS_THREAD 0u
#define SW_PROGRESS_CALLERS 1u

/* The weight of a line of the log. */
#define SW_LOG_WARNING 1u
#define SW_LOG_INFO 2u

/* Kinds of events. */
#define SW_CONNECTED 1u    /* a connection of sw_connect() is established */
#define SW_ACCEPTED 2u     /* a peer has begun a connection */
#define SW_CLOSED 3u       /* a connection has ended, after the events of all its operations */
#define SW_WRITE_DONE 4u   /* a write has ended; with SW_OK all its bytes are in the peer's memory */
#define SW_SEND_DONE 5u    /* a send has ended; with SW_OK all its bytes are in the peer's memory */
#define SW_RECEIVE_DONE 6u /* a receive has ended; with SW_OK the message is in its memory */
#define SW_WRITTEN 7u      /* a peer's write with an immediate is in our memory, and all that it posted before */
#define SW_READ_DONE 8u    /* a read has ended; with SW_OK all its bytes are in our memory */
#define SW_ATOMIC_DONE 9u  /* an atomic operation has ended; with SW_OK it happened once, and `tag` is the word before */

/* The things that a peer may do with exposed memory. */
#define SW_RIGHT_WRITE 1u
#define SW_RIGHT_READ 2u
#define SW_RIGHT_ATOMIC 4u

/* In place of a connection: all connections of the node, also later ones. */
#define SW_ALL_CONNECTIONS 0u

/* A write without an immediate. Immediates are numbers below 2^31. */
#define SW_NO_IMMEDIATE 0xffffffffu

typedef uint64_t sw_node_t;
typedef uint64_t sw_memory_t;
typedef uint64_t sw_connection_t;

/* Takes a line of the log: from any thread, not within a call that holds a lock, so it may call these functions. */
typedef void (*sw_log_function)(void *context, uint32_t level, const char *text);

/* The settings of a node. sw_config_init() sets defaults, which zeros and null pointers stand for. */
typedef struct sw_config {
    uint32_t size;             /* set by sw_config_init() */
    uint32_t progress;         /* default SW_PROGRESS_THREAD */
    const char *const *planes; /* local addresses, one for each plane: "10.0.0.1:4000", "[fd00::1]:0"; port 0: any */
    size_t planes_count;       /* 1 to 8 */
    const uint8_t *key;        /* the key that all nodes share */
    size_t key_length;         /* 16 bytes or more, from a source of random bytes */
    const char *profile;       /* the protocol; default "uec" */
    const char *protection;    /* "encrypted" (default), "authenticated" or "none" */
    uint32_t payload;          /* payload bytes of a full packet, the same on both sides; default: for an MTU of 1500 */
    uint32_t rate_mbps;        /* rate of all planes together; default 40000 */
    uint32_t base_rtt_us;      /* round trip without queueing; default 100 */
    uint32_t connections_max;  /* default 1024 */
    uint32_t operations_max;   /* unfinished sends and writes of a connection, and receives; default 1024 */
    uint32_t handshake_timeout_ms; /* default 3000 */
    uint32_t peer_timeout_ms;      /* default 3000 */
    uint32_t plane_timeout_ms;     /* default 40 */
    sw_log_function log;           /* default: none */
    void *log_context;             /* its first argument */
} sw_config;

/* A setting by name, for sw_node_open_by_name(). */
typedef struct sw_setting {
    const char *name;
    const char *value; /* null or empty: not set */
} sw_setting;

/* The right to a range of a node's memory. Send it to the peer in any way. */
typedef struct sw_remote {
    uint8_t bytes[16];
} sw_remote;

/* A write or a read of a list. */
typedef struct sw_step {
    sw_memory_t memory;
    uint64_t offset;
    uint64_t length;
    sw_remote remote;
    uint64_t at;
} sw_step;

typedef struct sw_event {
    uint32_t kind;
    int32_t code; /* SW_OK, or why the operation or connection ended */
    sw_connection_t connection;
    uint64_t context;   /* the number that was given to the operation */
    uint64_t tag;       /* of a message; SW_ATOMIC_DONE: the word as it was before */
    uint64_t bytes;     /* of a message, write or read; a receive may be longer than its message */
    uint64_t service;   /* SW_CONNECTED, SW_ACCEPTED: the number that the caller gave to sw_connect() */
    uint32_t immediate; /* SW_WRITTEN */
    uint32_t reserved;
} sw_event;

uint32_t sw_abi_version(void);
const char *sw_version(void);
const char *sw_error_text(int32_t code);

/* A line on the last call of this thread that failed. It is valid until the next one fails. */
const char *sw_last_error(void);

/* size: sizeof(sw_config). */
int32_t sw_config_init(sw_config *config, size_t size);

int32_t sw_node_open(const sw_config *config, sw_node_t *node);

/* Opens a node by settings with names: key_file or key (hexadecimal digits), planes or ifname (with commas between
 * several), profile, protection, payload (bytes), rate (Gb/s of all planes), base_rtt_us or rtt (milliseconds). What is
 * not given is taken from the variable of the environment with its name, as STRANDWAY_KEY_FILE, then from `config` (rate,
 * payload, round trip), then from the host: all interfaces that lead to other hosts are planes, their rates make the
 * rate, their MTU the payload. The other numbers of `config` count, too; its planes, key and names do not. */
int32_t sw_node_open_by_name(const sw_config *config, const sw_setting *settings, size_t count, sw_node_t *node);

/* Closes all connections and sockets of a node. Calls of other threads with it end with SW_ERROR_NO_NODE. */
int32_t sw_node_close(sw_node_t node);

/* Our address on a plane, as a text for sw_connect(). */
int32_t sw_node_address(sw_node_t node, uint32_t plane, char *text, size_t capacity);

/* A descriptor for poll(), select() or epoll. It can be read while events wait (SW_PROGRESS_THREAD), or when packets
 * wait (SW_PROGRESS_CALLERS). The node owns it: do not read or close it. */
int32_t sw_node_descriptor(sw_node_t node, int *descriptor);

/* Call before each wait on the descriptor: the longest time to wait. After it call sw_progress() and sw_poll(). */
int32_t sw_node_rest(sw_node_t node, uint32_t *milliseconds);

/* Memory that lies within registered memory may be registered again; memory that overlaps it in part may not. */
int32_t sw_memory_register(sw_node_t node, void *first, size_t length, sw_memory_t *memory);

/* Memory that is only read: for sends and writes. */
int32_t sw_memory_show(sw_node_t node, const void *first, size_t length, sw_memory_t *memory);

/* SW_ERROR_IN_USE while operations use it. What was exposed of it is void. */
int32_t sw_memory_release(sw_node_t node, sw_memory_t memory);

/* Lets the peer of a connection write into a range of memory, until sw_memory_revoke(), sw_memory_release() or the end
 * of the connection. A peer that writes elsewhere loses its connection. */
int32_t sw_memory_expose(sw_node_t node, sw_connection_t connection, sw_memory_t memory, uint64_t offset,
                         uint64_t length, sw_remote *remote);

/* The same for other rights, one or several of SW_RIGHT_...; with SW_ALL_CONNECTIONS for every peer that learns the
 * result and has the key of the nodes. Memory of sw_memory_show() can be exposed for SW_RIGHT_READ alone. */
int32_t sw_memory_expose_for(sw_node_t node, sw_connection_t connection, sw_memory_t memory, uint64_t offset,
                             uint64_t length, uint32_t rights, sw_remote *remote);
int32_t sw_memory_revoke(sw_node_t node, const sw_remote *remote);

/* Begins a connection; SW_CONNECTED or SW_CLOSED follows. planes: the peer's address on each plane, in the order of
 * ours. service: a number of the program's choice, which the peer's SW_ACCEPTED shows. Every node accepts connections
 * of those that have the key; sw_close() ends unwanted ones. */
int32_t sw_connect(sw_node_t node, const char *const *planes, size_t planes_count, uint64_t service,
                   sw_connection_t *connection);

/* Ends a connection. The events of its operations follow, and SW_CLOSED. */
int32_t sw_close(sw_node_t node, sw_connection_t connection);

/* Writes a range of memory into the peer's memory, `at` bytes from the start of what `remote` opens. With an immediate
 * the peer gets SW_WRITTEN. SW_WRITE_DONE follows. */
int32_t sw_write(sw_node_t node, sw_connection_t connection, sw_memory_t memory, uint64_t offset, uint64_t length,
                 const sw_remote *remote, uint64_t at, uint32_t immediate, uint64_t context);

/* Reads the peer's memory, from `at` bytes behind the start of what `remote` opens, into a range of ours. It sees what
 * earlier operations of the connection have written. SW_READ_DONE follows; if the peer refuses, its code says why, and
 * the connection goes on. */
int32_t sw_read(sw_node_t node, sw_connection_t connection, sw_memory_t memory, uint64_t offset, uint64_t length,
                const sw_remote *remote, uint64_t at, uint64_t context);

/* Write or read a list, which costs less than a call for each step. Each step is an operation with an event, all with the
 * same context. `posted` gets the number of steps that were posted; if it is less than `count` (at most 16384), the
 * result says why the next one was not, often SW_ERROR_BUSY. */
int32_t sw_write_list(sw_node_t node, sw_connection_t connection, const sw_step *steps, size_t count, uint64_t context,
                      size_t *posted);
int32_t sw_read_list(sw_node_t node, sw_connection_t connection, const sw_step *steps, size_t count, uint64_t context,
                     size_t *posted);

/* Change a word of 64 bits of the peer's memory, which has the byte order of the peer: add a number (the sum wraps), or
 * replace the word by `swapped` if it is `expected`. Each happens once, also if packets are lost; stores of the peer's
 * own program are not part of that order. SW_ATOMIC_DONE follows. */
int32_t sw_fetch_add(sw_node_t node, sw_connection_t connection, const sw_remote *remote, uint64_t at, uint64_t number,
                     uint64_t context);
int32_t sw_compare_swap(sw_node_t node, sw_connection_t connection, const sw_remote *remote, uint64_t at,
                        uint64_t expected, uint64_t swapped, uint64_t context);

/* Sends a message into the peer's receive with the same tag, for which it waits. Those of one tag meet in the order of
 * posting. SW_SEND_DONE follows; with SW_ERROR_TOO_LONG the receive was too short, and waits for the next send. */
int32_t sw_send(sw_node_t node, sw_connection_t connection, sw_memory_t memory, uint64_t offset, uint64_t length,
                uint64_t tag, uint64_t context);

/* Receives a message of at most `length` bytes. SW_RECEIVE_DONE follows. */
int32_t sw_receive(sw_node_t node, sw_connection_t connection, sw_memory_t memory, uint64_t offset, uint64_t length,
                   uint64_t tag, uint64_t context);

/* Moves packets once. Needed with SW_PROGRESS_CALLERS, useful with a thread: it rests while callers move packets. */
int32_t sw_progress(sw_node_t node);

/* Takes the oldest events, at most `capacity`, and never waits. */
int32_t sw_poll(sw_node_t node, sw_event *events, size_t capacity, size_t *count);

/* Moves packets until there are events, for at most `timeout_ms`, and takes the oldest. No event is no error. */
int32_t sw_wait(sw_node_t node, sw_event *events, size_t capacity, uint32_t timeout_ms, size_t *count);

#ifdef __cplusplus
}
#endif

#endif /* STRANDWAY_H */
