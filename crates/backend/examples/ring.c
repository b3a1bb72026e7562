/*
 * A ring all-reduce on a simulated fabric: each rank sends a block to the next one, and when one has arrived from the
 * one before, the next block, 2 (n - 1) times.
 *
 *   cc -Icrates/backend/include crates/backend/examples/ring.c -Ltarget/release -lstrandway_backend -o ring
 *   LD_LIBRARY_PATH=target/release ./ring scenario.toml 8 1048576
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strandway_backend.h>

struct ring {
    swb_lab_t lab;
    uint32_t ranks;
    uint64_t block;
    uint32_t *received;
};

static void check(int32_t code)
{
    if (code != SWB_OK) {
        fprintf(stderr, "%s\n", swb_last_error());
        exit(1);
    }
}

static void send_block(struct ring *ring, uint32_t rank)
{
    uint64_t message;
    check(swb_post(ring->lab, rank, (rank + 1) % ring->ranks, ring->block, ring->received[rank], &message));
}

static void answer(void *context, const swb_event *event)
{
    struct ring *ring = context;
    if (event->kind == SWB_RECEIVED && ++ring->received[event->host] < 2 * (ring->ranks - 1))
        send_block(ring, event->host);
}

int main(int argc, char **argv)
{
    const char *changes[] = {"run.seed=1"};
    struct ring ring;
    swb_event event;
    swb_result result;
    int32_t any = 1;

    if (argc < 4 || swb_abi_version() != SWB_ABI_VERSION) {
        fprintf(stderr, "usage: ring SCENARIO RANKS BYTES [asked | REPORT]\n");
        return 1;
    }
    ring.ranks = (uint32_t)atoi(argv[2]);
    ring.block = strtoull(argv[3], NULL, 10) / ring.ranks;
    ring.received = calloc(ring.ranks, sizeof *ring.received);
    check(swb_open(argv[1], changes, 1, &ring.lab));
    for (uint32_t rank = 0; rank < ring.ranks; rank++) {
        check(swb_connect(ring.lab, rank, (rank + 1) % ring.ranks));
        send_block(&ring, rank);
    }
    if (argc > 4 && strcmp(argv[4], "asked") == 0) {
        while (check(swb_next_event(ring.lab, &event, &any)), any)
            answer(&ring, &event);
    } else {
        check(swb_run(ring.lab, answer, &ring));
        if (argc > 4)
            check(swb_report(ring.lab, argv[4]));
    }
    check(swb_result_of(ring.lab, &result));
    printf("end %u, %llu messages, %llu ps, digest %016llx\n", result.end, (unsigned long long)result.messages,
           (unsigned long long)result.simulated, (unsigned long long)result.digest);
    check(swb_close(ring.lab));
    free(ring.received);
    return result.end == SWB_FINISHED ? 0 : 1;
}
