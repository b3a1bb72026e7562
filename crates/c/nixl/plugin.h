// The NIXL backend over strandway.h: what it keeps for memory, peers and transfers.
#ifndef STRANDWAY_NIXL_PLUGIN_H
#define STRANDWAY_NIXL_PLUGIN_H

#include "abi.h"
#include <atomic>
#include <deque>
#include <memory>
#include <strandway.h>
#include <thread>
#include <unordered_set>

namespace strandway {

// Memory of this agent.
struct Local : nixl::Metadata {
    sw_memory_t memory = 0;
    uintptr_t first = 0;
    size_t length = 0;
    sw_remote remote = {};
    Local() : Metadata(true) {}
};

// Memory of a peer, or of this agent as the target of its own transfers.
struct Remote : nixl::Metadata {
    uintptr_t first = 0;
    size_t length = 0;
    sw_remote remote = {};
    Remote() : Metadata(false) {}
};

// The addresses of a step of a transfer within the agent.
struct Copy {
    uintptr_t ours;
    uintptr_t theirs;
};

struct Peer;

struct Transfer : nixl::Request {
    nixl::Operation operation = nixl::READ;
    std::vector<sw_step> steps;
    std::vector<Copy> copies;
    Peer *peer = nullptr;
    uint64_t number = 0;
    bool has_notice = false;
    std::string notice;
    // Steps that the node has, or had.
    size_t next = 0;
    // Steps and pieces of the notice that have not ended.
    size_t open = 0;
    nixl::Status outcome = nixl::SUCCESS;
    std::atomic<int> status{nixl::SUCCESS};
    // NIXL has released it: it goes when its last step has ended.
    bool released = false;
};

// A piece of a notice: more follow if its first byte is 1.
struct Piece {
    std::string bytes;
    // 0 if no transfer waits for it.
    uint64_t transfer;
};

enum class Stage { Closed, Calling, Open };

// Another agent.
struct Peer {
    std::vector<std::string> planes;
    Stage stage = Stage::Closed;
    sw_connection_t connection = 0;
    // Transfers with steps that the node does not have yet.
    std::deque<uint64_t> transfers;
    std::deque<Piece> pieces;
    // Transfers that have not ended.
    std::unordered_set<uint64_t> all;
};

// Where a connection's notices arrive.
struct Inbox {
    std::vector<uint8_t> bytes;
    sw_memory_t memory = 0;
    std::string begun;
};

class Backend : public nixl::Engine {
    struct State;
    std::unique_ptr<State> state;

  public:
    explicit Backend(const nixl::InitParams *init);
    ~Backend() override;
    bool supports_remote() const override { return true; }
    bool supports_local() const override { return true; }
    bool supports_notices() const override { return true; }
    nixl::Kinds kinds() const override { return {nixl::DRAM}; }
    nixl::Status register_memory(const nixl::BlobDescriptor &, const nixl::Kind &, nixl::Metadata *&) override;
    nixl::Status deregister_memory(nixl::Metadata *) override;
    nixl::Status connect(const std::string &) override;
    nixl::Status disconnect(const std::string &) override;
    nixl::Status unload(nixl::Metadata *) override;
    nixl::Status prepare(const nixl::Operation &, const nixl::List &, const nixl::List &, const std::string &,
                         nixl::Request *&, const nixl::PostOptions *) const override;
    nixl::Status post(const nixl::Operation &, const nixl::List &, const nixl::List &, const std::string &,
                      nixl::Request *&, const nixl::PostOptions *) const override;
    nixl::Status check(nixl::Request *) const override;
    nixl::Status release(nixl::Request *) const override;
    nixl::Status public_data(const nixl::Metadata *, std::string &) const override;
    nixl::Status connection_info(std::string &) const override;
    nixl::Status load_connection_info(const std::string &, const std::string &) override;
    nixl::Status load_remote(const nixl::BlobDescriptor &, const nixl::Kind &, const std::string &,
                             nixl::Metadata *&) override;
    nixl::Status load_local(nixl::Metadata *, nixl::Metadata *&) override;
    nixl::Status take_notices(nixl::Notices &) override;
    nixl::Status send_notice(const std::string &, const std::string &) const override;
};

// Opens the node of an agent with the backend's parameters; a line on what is wrong, or nothing.
std::string open_node(const nixl::Params &params, sw_config &config, sw_node_t *node);

// The parameters with their defaults, as NIXL shows them.
nixl::Params default_params();

} // namespace strandway

#endif // STRANDWAY_NIXL_PLUGIN_H
