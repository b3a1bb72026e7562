/*
 * Two nodes in one process: a write into exposed memory, a read of it, then messages there and back.
 *
 *   cc -Icrates/c/include crates/c/examples/ping.c -Ltarget/wheel -lstrandway -o ping
 *   LD_LIBRARY_PATH=target/wheel ./ping
 */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strandway.h>

#define BYTES 100000
#define ROUNDS 50

static void check(int32_t code, const char *call) {
    if (code != SW_OK) {
        fprintf(stderr, "%s: %s (%s)\n", call, sw_last_error(), sw_error_text(code));
        exit(1);
    }
}

static void print_line(void *context, uint32_t level, const char *text) {
    if (level <= SW_LOG_WARNING) {
        fprintf(stderr, "%s: %s\n", (const char *)context, text);
    }
}

static sw_node_t open_node(const char *name, const char *protection) {
    static const uint8_t key[32] = "a key from /dev/urandom, really";
    const char *planes[] = {"127.0.0.1:0"};
    sw_config config;
    sw_node_t node;
    check(sw_config_init(&config, sizeof config), "sw_config_init");
    config.planes = planes;
    config.planes_count = 1;
    config.key = key;
    config.key_length = sizeof key;
    config.protection = protection;
    /* Long ones, for a machine that is busy with other things, or simulated. */
    config.handshake_timeout_ms = 30000;
    config.peer_timeout_ms = 30000;
    config.log = print_line;
    config.log_context = (void *)name;
    check(sw_node_open(&config, &node), "sw_node_open");
    return node;
}

/* A node of the example, with the events that it has not looked at yet. */
struct side {
    sw_node_t node;
    sw_event early[16];
    size_t count;
};

/* The next event of a kind; others wait. Events of different operations may come in any order. */
static sw_event next(struct side *side, uint32_t kind) {
    for (int tries = 0; tries < 600; tries++) {
        for (size_t i = 0; i < side->count; i++) {
            if (side->early[i].kind == kind) {
                sw_event event = side->early[i];
                side->early[i] = side->early[--side->count];
                return event;
            }
        }
        size_t count = 0;
        check(sw_wait(side->node, side->early + side->count, 16 - side->count, 100, &count), "sw_wait");
        side->count += count;
    }
    fprintf(stderr, "no event %u\n", kind);
    exit(1);
}

/* An operation that has to succeed. */
static sw_event done(struct side *side, uint32_t kind) {
    sw_event event = next(side, kind);
    check(event.code, "an operation");
    return event;
}

int main(int count, char **arguments) {
    static uint8_t here[BYTES], there[BYTES];
    static struct side a, b;
    /* "none" where the processor cannot encrypt, such as that of valgrind. */
    const char *protection = count > 1 ? arguments[1] : NULL;
    sw_connection_t to, from;
    sw_memory_t memory_a, memory_b;
    sw_remote remote;
    char address[64];
    const char *addresses[] = {address};

    if (sw_abi_version() != SW_ABI_VERSION) {
        fprintf(stderr, "the header is of version %u, the library of %u\n", SW_ABI_VERSION, sw_abi_version());
        return 1;
    }
    a.node = open_node("a", protection);
    b.node = open_node("b", protection);
    check(sw_node_address(b.node, 0, address, sizeof address), "sw_node_address");
    check(sw_connect(a.node, addresses, 1, 1, &to), "sw_connect");
    from = done(&b, SW_ACCEPTED).connection;
    done(&a, SW_CONNECTED);
    check(sw_memory_register(a.node, here, sizeof here, &memory_a), "sw_memory_register");
    check(sw_memory_register(b.node, there, sizeof there, &memory_b), "sw_memory_register");

    /* b tells a in a message where it may write. */
    check(sw_memory_expose(b.node, from, memory_b, 0, BYTES, &remote), "sw_memory_expose");
    check(sw_receive(a.node, to, memory_a, 0, sizeof remote, 7, 1), "sw_receive");
    memcpy(there, remote.bytes, sizeof remote.bytes);
    check(sw_send(b.node, from, memory_b, 0, sizeof remote, 7, 2), "sw_send");
    done(&a, SW_RECEIVE_DONE);
    done(&b, SW_SEND_DONE);
    memcpy(remote.bytes, here, sizeof remote.bytes);

    for (size_t i = 0; i < BYTES; i++) {
        here[i] = (uint8_t)(i * 7);
    }
    check(sw_write(a.node, to, memory_a, 0, BYTES, &remote, 0, 42, 3), "sw_write");
    if (done(&b, SW_WRITTEN).immediate != 42 || memcmp(here, there, BYTES) != 0) {
        fprintf(stderr, "other bytes were written\n");
        return 1;
    }
    done(&a, SW_WRITE_DONE);

    /* The other way: a reads what b has, and counts in b's memory. */
    const uint32_t rights = SW_RIGHT_READ | SW_RIGHT_ATOMIC;
    uint64_t word = 5;
    for (size_t i = 0; i < BYTES; i++) {
        there[i] = (uint8_t)(i * 5);
    }
    memcpy(there + 8, &word, sizeof word);
    check(sw_memory_expose_for(b.node, from, memory_b, 0, BYTES, rights, &remote), "sw_memory_expose_for");
    check(sw_fetch_add(a.node, to, &remote, 8, 10, 4), "sw_fetch_add");
    check(sw_compare_swap(a.node, to, &remote, 8, 15, 77, 5), "sw_compare_swap");
    check(sw_read(a.node, to, memory_a, 0, BYTES, &remote, 0, 6), "sw_read");
    uint64_t fetched = done(&a, SW_ATOMIC_DONE).tag;
    fetched += done(&a, SW_ATOMIC_DONE).tag;
    if (fetched != 5 + 15) {
        fprintf(stderr, "another word was fetched\n");
        return 1;
    }
    done(&a, SW_READ_DONE);
    memcpy(&word, here + 8, sizeof word);
    if (word != 77 || memcmp(here, there, BYTES) != 0) {
        fprintf(stderr, "other bytes were read\n");
        return 1;
    }
    /* Two parts of it in one call, in the other order. */
    const sw_step parts[] = {{memory_a, BYTES / 2, BYTES / 2, remote, 0}, {memory_a, 0, BYTES / 2, remote, BYTES / 2}};
    size_t posted = 0;
    check(sw_read_list(a.node, to, parts, 2, 7, &posted), "sw_read_list");
    done(&a, SW_READ_DONE);
    done(&a, SW_READ_DONE);
    if (posted != 2 || memcmp(here, there + BYTES / 2, BYTES / 2) != 0 || memcmp(here + BYTES / 2, there, BYTES / 2) != 0) {
        fprintf(stderr, "other parts were read\n");
        return 1;
    }
    check(sw_memory_revoke(b.node, &remote), "sw_memory_revoke");
    check(sw_read(a.node, to, memory_a, 0, 8, &remote, 0, 7), "sw_read");
    if (next(&a, SW_READ_DONE).code != SW_ERROR_NO_KEY) {
        fprintf(stderr, "memory was read that is not exposed any more\n");
        return 1;
    }

    for (uint64_t round = 0; round < ROUNDS; round++) {
        check(sw_receive(b.node, from, memory_b, 0, 64, 1, round), "sw_receive");
        check(sw_receive(a.node, to, memory_a, 64, 64, 2, round), "sw_receive");
        memset(here, (int)round, 64);
        check(sw_send(a.node, to, memory_a, 0, 64, 1, round), "sw_send");
        if (done(&b, SW_RECEIVE_DONE).bytes != 64 || there[63] != (uint8_t)round) {
            fprintf(stderr, "another message came\n");
            return 1;
        }
        check(sw_send(b.node, from, memory_b, 0, 64, 2, round), "sw_send");
        done(&b, SW_SEND_DONE);
        done(&a, SW_SEND_DONE);
        done(&a, SW_RECEIVE_DONE);
    }

    /* A wait on the descriptor: of several things of a program, say. */
    struct pollfd wait = {.events = POLLIN};
    uint32_t rest;
    check(sw_node_descriptor(b.node, &wait.fd), "sw_node_descriptor");
    check(sw_close(a.node, to), "sw_close");
    if (next(&a, SW_CLOSED).code != SW_ERROR_CLOSED_HERE) {
        return 1;
    }
    check(sw_node_rest(b.node, &rest), "sw_node_rest");
    if (rest > 0) {
        poll(&wait, 1, 10000);
    }
    if (next(&b, SW_CLOSED).code != SW_ERROR_CLOSED_BY_PEER) {
        return 1;
    }
    check(sw_memory_release(a.node, memory_a), "sw_memory_release");
    check(sw_node_close(a.node), "sw_node_close");
    check(sw_node_close(b.node), "sw_node_close");
    if (sw_node_close(b.node) != SW_ERROR_NO_NODE) {
        fprintf(stderr, "a node was closed twice\n");
        return 1;
    }
    puts("100000 bytes written and read, 50 messages there and back");
    return 0;
}
