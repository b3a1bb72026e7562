// A NIXL backend over strandway.h: host memory, local and remote, with notices.
//
// Every agent has a node. Memory is exposed to all peers that have the nodes' key; the metadata that NIXL carries has
// what a peer needs for it. A transfer is one write or read for each descriptor, on one connection to the peer, which
// uses all planes. Notices are messages with a tag on the same connection, so they come after the bytes before them.
#include "state.h"
#include <algorithm>
#include <cstring>
#include <sys/mman.h>
#include <unistd.h>

namespace strandway {

namespace {

constexpr char MAGIC[] = "strandway 1";
// How often memory is asked for again that peers still read.
constexpr int RELEASE_TRIES = 1000;
// MADV_POPULATE_WRITE, which older headers do not have: Linux 5.14.
constexpr int POPULATE = 23;

// Gives memory its pages, as the registration with an RDMA NIC does: otherwise the first transfer waits for each of them.
// It changes no byte. Memory that cannot be written, and older kernels, refuse it, which costs only that time.
void populate(uintptr_t first, size_t length) {
    const uintptr_t page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
    const uintptr_t start = first / page * page;
    madvise(reinterpret_cast<void *>(start), first + length - start, POPULATE);
}

} // namespace

Backend::Backend(const nixl::InitParams *init) : Engine(init), state(std::make_unique<State>()) {
    const std::string wrong = state->open(*init);
    if (!wrong.empty()) {
        warn(wrong);
        failed = true;
    }
}

Backend::~Backend() {
    state->ends = true;
    if (state->node) {
        sw_node_close(state->node);
    }
    if (state->thread.joinable()) {
        state->thread.join();
    }
    for (const auto &[number, transfer] : state->transfers) {
        if (transfer->released) {
            delete transfer;
        }
    }
}

Status Backend::register_memory(const nixl::BlobDescriptor &memory, const nixl::Kind &kind, nixl::Metadata *&out) {
    if (kind != nixl::DRAM) {
        return nixl::NOT_SUPPORTED;
    }
    auto local = std::make_unique<Local>();
    local->first = memory.address;
    local->length = memory.length;
    populate(memory.address, memory.length);
    int32_t code =
        sw_memory_register(state->node, reinterpret_cast<void *>(memory.address), memory.length, &local->memory);
    if (code == SW_OK) {
        code = sw_memory_expose_for(state->node, SW_ALL_CONNECTIONS, local->memory, 0, memory.length,
                                    SW_RIGHT_READ | SW_RIGHT_WRITE, &local->remote);
    }
    if (code != SW_OK) {
        warn(sw_last_error());
        return code == SW_ERROR_OVERLAP ? nixl::NOT_ALLOWED : status_of(code);
    }
    out = local.release();
    return nixl::SUCCESS;
}

Status Backend::deregister_memory(nixl::Metadata *metadata) {
    const std::unique_ptr<Local> local(static_cast<Local *>(metadata));
    sw_memory_revoke(state->node, &local->remote);
    int32_t code = sw_memory_release(state->node, local->memory);
    if (code == SW_ERROR_IN_USE) {
        // Transfers that NIXL has given up still use it: their connections end.
        const Guard guard(state->lock);
        for (auto &[name, peer] : state->peers) {
            for (const uint64_t number : peer.all) {
                const Transfer &transfer = *state->transfers.at(number);
                const bool uses = std::any_of(transfer.steps.begin(), transfer.steps.end(),
                                              [&](const sw_step &step) { return step.memory == local->memory; });
                if (uses && peer.stage != Stage::Closed) {
                    sw_close(state->node, peer.connection);
                    break;
                }
            }
        }
    }
    // Peers' reads that are under way end soon, or their connections do.
    for (int tries = 0; code == SW_ERROR_IN_USE && tries < RELEASE_TRIES; tries++) {
        {
            const Guard guard(state->lock);
            state->progress();
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
        code = sw_memory_release(state->node, local->memory);
    }
    if (code != SW_OK) {
        warn(sw_last_error());
    }
    return status_of(code);
}

Status Backend::connect(const std::string &name) {
    if (name == agent) {
        return nixl::SUCCESS;
    }
    const Guard guard(state->lock);
    const auto peer = state->peers.find(name);
    if (peer == state->peers.end()) {
        return nixl::NOT_FOUND;
    }
    state->call(peer->second);
    return nixl::SUCCESS;
}

Status Backend::disconnect(const std::string &name) {
    const Guard guard(state->lock);
    const auto peer = state->peers.find(name);
    if (peer != state->peers.end() && peer->second.stage != Stage::Closed) {
        const sw_connection_t connection = peer->second.connection;
        sw_close(state->node, connection);
        state->callers.erase(connection);
        state->lose(peer->second, SW_ERROR_CLOSED_HERE);
    }
    return nixl::SUCCESS;
}

Status Backend::unload(nixl::Metadata *metadata) {
    delete metadata;
    return nixl::SUCCESS;
}

Status Backend::prepare(const nixl::Operation &operation, const nixl::List &ours, const nixl::List &theirs,
                        const std::string &name, nixl::Request *&handle, const nixl::PostOptions *) const {
    if (ours.descriptors.size() != theirs.descriptors.size() || ours.kind != nixl::DRAM || theirs.kind != nixl::DRAM) {
        return nixl::INVALID;
    }
    auto transfer = std::make_unique<Transfer>();
    transfer->operation = operation;
    transfer->steps.reserve(ours.descriptors.size());
    for (size_t i = 0; i < ours.descriptors.size(); i++) {
        const nixl::Descriptor &here = ours.descriptors[i], &there = theirs.descriptors[i];
        const auto *local = static_cast<const Local *>(here.metadata);
        const auto *remote = static_cast<const Remote *>(there.metadata);
        const auto within = [](const nixl::Descriptor &part, uintptr_t first, size_t length) {
            return part.address >= first && part.length <= length && part.address - first <= length - part.length;
        };
        if (here.length != there.length || !local || !remote || !within(here, local->first, local->length) ||
            !within(there, remote->first, remote->length)) {
            return nixl::INVALID;
        }
        transfer->steps.push_back({local->memory, here.address - local->first, here.length, remote->remote,
                                   there.address - remote->first});
        if (name == agent) {
            transfer->copies.push_back({here.address, there.address});
        }
    }
    if (name != agent) {
        const Guard guard(state->lock);
        const auto peer = state->peers.find(name);
        if (peer == state->peers.end()) {
            return nixl::NOT_FOUND;
        }
        transfer->peer = &peer->second;
        // The connection is there when the transfer is posted.
        state->call(peer->second);
    }
    handle = transfer.release();
    return nixl::SUCCESS;
}

Status Backend::post(const nixl::Operation &, const nixl::List &, const nixl::List &, const std::string &,
                     nixl::Request *&handle, const nixl::PostOptions *options) const {
    Transfer &transfer = *static_cast<Transfer *>(handle);
    const bool has_notice = options && options->has_notice;
    if (!transfer.peer) {
        for (size_t i = 0; i < transfer.copies.size(); i++) {
            void *ours = reinterpret_cast<void *>(transfer.copies[i].ours);
            void *theirs = reinterpret_cast<void *>(transfer.copies[i].theirs);
            const bool writes = transfer.operation == nixl::WRITE;
            std::memmove(writes ? theirs : ours, writes ? ours : theirs, transfer.steps[i].length);
        }
        const Guard guard(state->lock);
        if (has_notice) {
            state->notices.emplace_back(agent, options->notice);
        }
        return nixl::SUCCESS;
    }
    const Guard guard(state->lock);
    if (transfer.status == nixl::IN_PROGRESS) {
        return nixl::REPOST_ACTIVE;
    }
    if (has_notice && options->notice.size() + agent.size() + 16 > NOTICE_MAX) {
        return nixl::INVALID;
    }
    transfer.has_notice = has_notice;
    transfer.notice = has_notice ? options->notice : "";
    transfer.number = state->next_transfer++;
    transfer.next = transfer.open = 0;
    transfer.outcome = nixl::SUCCESS;
    transfer.status = nixl::IN_PROGRESS;
    state->transfers[transfer.number] = &transfer;
    Peer &peer = *transfer.peer;
    peer.all.insert(transfer.number);
    peer.transfers.push_back(transfer.number);
    state->call(peer);
    state->pump(peer);
    state->progress();
    return Status(transfer.status.load());
}

Status Backend::check(nixl::Request *handle) const {
    const Transfer &transfer = *static_cast<Transfer *>(handle);
    if (transfer.status == nixl::IN_PROGRESS && !state->has_thread) {
        const Guard guard(state->lock);
        state->progress();
    }
    return Status(transfer.status.load());
}

// A transfer that runs goes on in the background, and NIXL does not wait for it. Its memory is safe until
// `deregister_memory`, which ends the connection if need be.
Status Backend::release(nixl::Request *handle) const {
    auto *transfer = static_cast<Transfer *>(handle);
    const Guard guard(state->lock);
    if (transfer->status == nixl::IN_PROGRESS) {
        transfer->released = true;
        // Steps that the node does not have are not begun.
        transfer->next = transfer->steps.size();
        transfer->has_notice = false;
        state->settle(*transfer);
        return nixl::SUCCESS;
    }
    delete transfer;
    return nixl::SUCCESS;
}

Status Backend::public_data(const nixl::Metadata *metadata, std::string &into) const {
    const auto *local = static_cast<const Local *>(metadata);
    into.assign(reinterpret_cast<const char *>(local->remote.bytes), sizeof local->remote.bytes);
    append(into, uint64_t(local->first));
    append(into, uint64_t(local->length));
    return nixl::SUCCESS;
}

Status Backend::connection_info(std::string &into) const {
    into = MAGIC;
    char address[64];
    for (uint32_t plane = 0; sw_node_address(state->node, plane, address, sizeof address) == SW_OK; plane++) {
        append(into, std::string(address));
    }
    return nixl::SUCCESS;
}

Status Backend::load_connection_info(const std::string &name, const std::string &info) {
    std::string_view rest = info;
    const size_t magic = sizeof MAGIC - 1;
    std::vector<std::string> planes;
    std::string plane;
    if (rest.substr(0, magic) != MAGIC) {
        warn("the metadata of agent " + name + " is of another version of this backend: update the older side");
        return nixl::INVALID;
    }
    rest.remove_prefix(magic);
    while (!rest.empty() && planes.size() < 64) {
        if (!take(rest, plane)) {
            return nixl::INVALID;
        }
        planes.push_back(plane);
    }
    const Guard guard(state->lock);
    state->peers[name].planes = planes;
    return planes.empty() ? nixl::INVALID : nixl::SUCCESS;
}

Status Backend::load_remote(const nixl::BlobDescriptor &memory, const nixl::Kind &, const std::string &,
                            nixl::Metadata *&out) {
    auto remote = std::make_unique<Remote>();
    std::string_view rest = memory.blob;
    uint64_t first = 0, length = 0;
    if (rest.size() != sizeof remote->remote.bytes + 16) {
        return nixl::INVALID;
    }
    std::memcpy(remote->remote.bytes, rest.data(), sizeof remote->remote.bytes);
    rest.remove_prefix(sizeof remote->remote.bytes);
    if (!take(rest, first) || !take(rest, length)) {
        return nixl::INVALID;
    }
    remote->first = first;
    remote->length = length;
    out = remote.release();
    return nixl::SUCCESS;
}

Status Backend::load_local(nixl::Metadata *metadata, nixl::Metadata *&out) {
    const auto *local = static_cast<const Local *>(metadata);
    auto remote = std::make_unique<Remote>();
    remote->first = local->first;
    remote->length = local->length;
    remote->remote = local->remote;
    out = remote.release();
    return nixl::SUCCESS;
}

Status Backend::take_notices(nixl::Notices &into) {
    const Guard guard(state->lock);
    state->progress();
    for (auto &notice : state->notices) {
        into.push_back(std::move(notice));
    }
    state->notices.clear();
    return nixl::SUCCESS;
}

Status Backend::send_notice(const std::string &name, const std::string &text) const {
    const Guard guard(state->lock);
    if (name == agent) {
        state->notices.emplace_back(agent, text);
        return nixl::SUCCESS;
    }
    const auto peer = state->peers.find(name);
    if (peer == state->peers.end()) {
        return nixl::NOT_FOUND;
    }
    if (text.size() + agent.size() + 16 > NOTICE_MAX) {
        return nixl::INVALID;
    }
    state->call(peer->second);
    state->send(peer->second, text, 0);
    state->progress();
    return nixl::SUCCESS;
}

} // namespace strandway

extern "C" __attribute__((visibility("default"))) nixl::Plugin *nixl_plugin_init() {
    static nixl::Plugin plugin = {
        1,
        [](const nixl::InitParams *init) -> nixl::Engine * {
            if (sw_abi_version() != SW_ABI_VERSION) {
                return nullptr;
            }
            return new strandway::Backend(init);
        },
        [](nixl::Engine *engine) { delete engine; },
        []() -> const char * { return "STRANDWAY"; },
        []() -> const char * { return sw_version(); },
        strandway::default_params,
        []() -> nixl::Kinds { return {nixl::DRAM}; },
    };
    return &plugin;
}

extern "C" __attribute__((visibility("default"))) void nixl_plugin_fini() {}
