// The state of the backend: its node, peers, transfers and notices. All but `run` is called with `lock`.
#ifndef STRANDWAY_NIXL_STATE_H
#define STRANDWAY_NIXL_STATE_H

#include "plugin.h"
#include <string_view>

namespace strandway {

using nixl::Status;
using Guard = std::unique_lock<std::mutex>;

// The longest notice, with the name of its sender.
constexpr size_t NOTICE_MAX = 16 << 20;

void warn(const std::string &line);

Status status_of(int32_t code);

// Texts and numbers in metadata and notices.
void append(std::string &to, uint64_t number);
void append(std::string &to, const std::string &text);
// These take from the start of a text; false if it is too short.
bool take(std::string_view &from, uint64_t &number);
bool take(std::string_view &from, std::string &text);

struct Backend::State {
    std::mutex lock;
    std::string agent;
    sw_node_t node = 0;
    std::thread thread;
    std::atomic<bool> ends{false};
    bool has_thread = false;
    std::unordered_map<std::string, Peer> peers;
    std::unordered_map<sw_connection_t, Peer *> callers;
    std::unordered_map<sw_connection_t, Inbox> inboxes;
    std::unordered_map<uint64_t, Transfer *> transfers;
    uint64_t next_transfer = 1;
    nixl::Notices notices;
    // Memory of pieces under way, the places of those that are free, and the transfers that wait for the others.
    std::vector<uint8_t> outbox;
    sw_memory_t outbox_memory = 0;
    std::vector<uint64_t> free_places;
    std::vector<uint64_t> waits;

    std::string open(const nixl::InitParams &init);
    void run();
    void progress();
    void handle(const sw_event &event);
    void call(Peer &peer);
    void receive(sw_connection_t connection);
    void read_piece(const sw_event &event);
    void pump(Peer &peer);
    void send(Peer &peer, const std::string &text, uint64_t transfer);
    void send_pieces(Peer &peer);
    void finish_step(Transfer &transfer, int32_t code);
    void settle(Transfer &transfer);
    void lose(Peer &peer, int32_t code);
};

} // namespace strandway

#endif // STRANDWAY_NIXL_STATE_H
