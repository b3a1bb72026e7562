// The state of the backend: events of the node, and what follows from them.
#include "state.h"
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace strandway {

namespace {

// Bytes of a piece of a notice, and pieces that a connection receives, and that a node sends, at a time.
constexpr size_t PIECE = 1024;
constexpr size_t RECEIVES = 64;
constexpr size_t SENDS = 256;
constexpr uint64_t TAG = 1;
// Contexts of notices have this bit; the other bits are their place. Contexts of steps are numbers of transfers.
constexpr uint64_t IS_NOTICE = uint64_t(1) << 63;
constexpr size_t EVENTS = 256;
// Steps of one call, so that packets leave meanwhile.
constexpr size_t STEPS = 256;
constexpr uint32_t OPERATIONS_MAX = 8192;

} // namespace

void warn(const std::string &line) { std::fprintf(stderr, "NIXL/STRANDWAY: %s\n", line.c_str()); }

Status status_of(int32_t code) {
    switch (code) {
    case SW_OK:
        return nixl::SUCCESS;
    case SW_ERROR_CLOSED_BY_PEER:
    case SW_ERROR_CLOSED_HERE:
    case SW_ERROR_PEER_SILENT:
    case SW_ERROR_NO_ANSWER:
    case SW_ERROR_NO_CONNECTION:
    case SW_ERROR_NOT_CONNECTED:
        return nixl::REMOTE_DISCONNECT;
    case SW_ERROR_REMOTE_ACCESS:
    case SW_ERROR_NO_KEY:
    case SW_ERROR_NO_RIGHT:
    case SW_ERROR_REMOTE_RANGE:
        return nixl::NOT_ALLOWED;
    case SW_ERROR_RANGE:
    case SW_ERROR_INVALID:
        return nixl::INVALID;
    default:
        return nixl::BACKEND;
    }
}

void append(std::string &to, uint64_t number) { to.append(reinterpret_cast<const char *>(&number), sizeof number); }

bool take(std::string_view &from, uint64_t &number) {
    if (from.size() < sizeof number) {
        return false;
    }
    std::memcpy(&number, from.data(), sizeof number);
    from.remove_prefix(sizeof number);
    return true;
}

bool take(std::string_view &from, std::string &text) {
    uint64_t length = 0;
    if (!take(from, length) || from.size() < length) {
        return false;
    }
    text.assign(from.substr(0, length));
    from.remove_prefix(length);
    return true;
}

void append(std::string &to, const std::string &text) {
    append(to, uint64_t(text.size()));
    to += text;
}

std::string Backend::State::open(const nixl::InitParams &init) {
    agent = init.agent;
    sw_config config;
    if (sw_config_init(&config, sizeof config) != SW_OK) {
        return sw_last_error();
    }
    config.operations_max = OPERATIONS_MAX;
    config.log = [](void *, uint32_t level, const char *text) {
        if (level <= SW_LOG_WARNING || std::getenv("STRANDWAY_NIXL_LOG")) {
            warn(text);
        }
    };
    const std::string wrong = open_node(*init.params, config, &node);
    if (!wrong.empty()) {
        return wrong;
    }
    outbox.resize(SENDS * PIECE);
    waits.resize(SENDS);
    for (uint64_t place = 0; place < SENDS; place++) {
        free_places.push_back(place);
    }
    if (sw_memory_register(node, outbox.data(), outbox.size(), &outbox_memory) != SW_OK) {
        return sw_last_error();
    }
    has_thread = init.has_thread;
    if (has_thread) {
        thread = std::thread([this] { run(); });
    }
    return "";
}

// The backend's thread: waits for events and handles them.
void Backend::State::run() {
    std::vector<sw_event> events(EVENTS);
    while (!ends) {
        size_t count = 0;
        if (sw_wait(node, events.data(), events.size(), 50, &count) != SW_OK) {
            return;
        }
        if (count > 0) {
            const Guard guard(lock);
            for (size_t i = 0; i < count; i++) {
                handle(events[i]);
            }
        }
    }
}

// Without a thread: moves packets and handles events in a call.
void Backend::State::progress() {
    sw_event events[EVENTS];
    size_t count = EVENTS;
    if (has_thread || sw_progress(node) != SW_OK) {
        return;
    }
    while (count == EVENTS && sw_poll(node, events, EVENTS, &count) == SW_OK) {
        for (size_t i = 0; i < count; i++) {
            handle(events[i]);
        }
    }
}

void Backend::State::handle(const sw_event &event) {
    switch (event.kind) {
    case SW_CONNECTED: {
        const auto caller = callers.find(event.connection);
        if (caller != callers.end()) {
            caller->second->stage = Stage::Open;
            receive(event.connection);
            pump(*caller->second);
        }
        break;
    }
    case SW_ACCEPTED:
        receive(event.connection);
        break;
    case SW_CLOSED: {
        const auto inbox = inboxes.find(event.connection);
        if (inbox != inboxes.end()) {
            sw_memory_release(node, inbox->second.memory);
            inboxes.erase(inbox);
        }
        const auto caller = callers.find(event.connection);
        if (caller != callers.end()) {
            Peer &peer = *caller->second;
            callers.erase(caller);
            lose(peer, event.code);
        }
        break;
    }
    case SW_RECEIVE_DONE:
        if (event.code == SW_OK) {
            read_piece(event);
        }
        break;
    case SW_SEND_DONE: {
        const uint64_t place = event.context & ~IS_NOTICE;
        const uint64_t number = waits[place];
        free_places.push_back(place);
        const auto transfer = transfers.find(number);
        if (transfer != transfers.end()) {
            finish_step(*transfer->second, event.code);
        }
        const auto caller = callers.find(event.connection);
        if (caller != callers.end()) {
            send_pieces(*caller->second);
        }
        break;
    }
    case SW_WRITE_DONE:
    case SW_READ_DONE: {
        const auto caller = callers.find(event.connection);
        const auto transfer = transfers.find(event.context);
        if (transfer != transfers.end()) {
            finish_step(*transfer->second, event.code);
        }
        if (caller != callers.end() && !caller->second->transfers.empty()) {
            pump(*caller->second);
        }
        break;
    }
    default:
        break;
    }
}

// Begins a connection, if there is none.
void Backend::State::call(Peer &peer) {
    if (peer.stage != Stage::Closed) {
        return;
    }
    std::vector<const char *> planes;
    for (const std::string &plane : peer.planes) {
        planes.push_back(plane.c_str());
    }
    const int32_t code = sw_connect(node, planes.data(), planes.size(), 0, &peer.connection);
    if (code != SW_OK) {
        warn(sw_last_error());
        return lose(peer, code);
    }
    peer.stage = Stage::Calling;
    callers[peer.connection] = &peer;
}

// A connection is there: room for the peer's notices.
void Backend::State::receive(sw_connection_t connection) {
    Inbox &inbox = inboxes[connection];
    inbox.bytes.resize(RECEIVES * PIECE);
    if (sw_memory_register(node, inbox.bytes.data(), inbox.bytes.size(), &inbox.memory) != SW_OK) {
        return warn(sw_last_error());
    }
    for (uint64_t place = 0; place < RECEIVES; place++) {
        sw_receive(node, connection, inbox.memory, place * PIECE, PIECE, TAG, place);
    }
}

void Backend::State::read_piece(const sw_event &event) {
    const auto found = inboxes.find(event.connection);
    if (found == inboxes.end()) {
        return;
    }
    Inbox &inbox = found->second;
    const char *start = reinterpret_cast<const char *>(inbox.bytes.data()) + event.context * PIECE;
    const bool more = event.bytes > 0 && start[0] == 1;
    if (event.bytes > 0 && inbox.begun.size() + event.bytes <= NOTICE_MAX) {
        inbox.begun.append(start + 1, event.bytes - 1);
    }
    if (!more) {
        std::string_view rest = inbox.begun;
        std::string from, text;
        if (take(rest, from) && take(rest, text) && rest.empty()) {
            notices.emplace_back(from, text);
        } else {
            warn("a notice of a peer is malformed, and was dropped");
        }
        inbox.begun.clear();
    }
    sw_receive(node, event.connection, inbox.memory, event.context * PIECE, PIECE, TAG, event.context);
}

// Queues a notice behind all that was posted to the peer.
void Backend::State::send(Peer &peer, const std::string &text, uint64_t transfer) {
    std::string whole;
    append(whole, agent);
    append(whole, text);
    for (size_t at = 0; at < whole.size(); at += PIECE - 1) {
        const std::string part = whole.substr(at, PIECE - 1);
        const bool more = at + part.size() < whole.size();
        peer.pieces.push_back({std::string(1, more ? 1 : 0) + part, transfer});
        const auto waiting = transfers.find(transfer);
        if (waiting != transfers.end()) {
            waiting->second->open++;
        }
    }
    send_pieces(peer);
}

void Backend::State::send_pieces(Peer &peer) {
    while (peer.stage == Stage::Open && !peer.pieces.empty() && !free_places.empty()) {
        const Piece &piece = peer.pieces.front();
        const uint64_t place = free_places.back();
        std::memcpy(outbox.data() + place * PIECE, piece.bytes.data(), piece.bytes.size());
        const int32_t code = sw_send(node, peer.connection, outbox_memory, place * PIECE, piece.bytes.size(), TAG,
                                     IS_NOTICE | place);
        if (code != SW_OK) {
            // A limit that the next event lifts, or the end of the connection, whose event follows.
            return;
        }
        free_places.pop_back();
        waits[place] = piece.transfer;
        peer.pieces.pop_front();
    }
}

// Hands the node the steps that it takes.
void Backend::State::pump(Peer &peer) {
    if (peer.stage != Stage::Open) {
        return;
    }
    while (!peer.transfers.empty()) {
        const auto found = transfers.find(peer.transfers.front());
        if (found == transfers.end()) {
            peer.transfers.pop_front();
            continue;
        }
        Transfer &transfer = *found->second;
        while (transfer.next < transfer.steps.size() && transfer.outcome == nixl::SUCCESS) {
            const auto post = transfer.operation == nixl::WRITE ? sw_write_list : sw_read_list;
            const size_t count = std::min(transfer.steps.size() - transfer.next, STEPS);
            size_t posted = 0;
            const int32_t code = post(node, peer.connection, transfer.steps.data() + transfer.next, count,
                                      transfer.number, &posted);
            transfer.next += posted;
            transfer.open += posted;
            if (code == SW_ERROR_BUSY) {
                return;
            }
            if (code != SW_OK) {
                warn(sw_last_error());
                transfer.outcome = status_of(code);
                break;
            }
        }
        transfer.next = transfer.steps.size();
        peer.transfers.pop_front();
        settle(transfer);
    }
    send_pieces(peer);
}

void Backend::State::finish_step(Transfer &transfer, int32_t code) {
    transfer.open--;
    if (code != SW_OK && transfer.outcome == nixl::SUCCESS) {
        transfer.outcome = status_of(code);
    }
    settle(transfer);
}

// Is a transfer at its end? Its notice leaves when all writes are posted, or all reads are done.
void Backend::State::settle(Transfer &transfer) {
    if (transfer.next < transfer.steps.size()) {
        return;
    }
    if (transfer.has_notice && transfer.outcome == nixl::SUCCESS &&
        (transfer.operation == nixl::WRITE || transfer.open == 0)) {
        transfer.has_notice = false;
        transfer.open++;
        send(*transfer.peer, transfer.notice, transfer.number);
        transfer.open--;
    }
    if (transfer.open > 0) {
        return;
    }
    transfers.erase(transfer.number);
    transfer.peer->all.erase(transfer.number);
    const int outcome = transfer.outcome;
    if (transfer.released) {
        delete &transfer;
        return;
    }
    transfer.status = outcome;
}

// The connection to a peer has ended, after the events of all its operations.
void Backend::State::lose(Peer &peer, int32_t code) {
    peer.stage = Stage::Closed;
    peer.connection = 0;
    peer.transfers.clear();
    std::deque<Piece> pieces;
    pieces.swap(peer.pieces);
    for (const Piece &piece : pieces) {
        const auto transfer = transfers.find(piece.transfer);
        if (transfer != transfers.end()) {
            transfer->second->open--;
        }
    }
    const std::unordered_set<uint64_t> all = peer.all;
    for (const uint64_t number : all) {
        const auto found = transfers.find(number);
        if (found != transfers.end()) {
            Transfer &transfer = *found->second;
            transfer.outcome = transfer.outcome == nixl::SUCCESS ? status_of(code) : transfer.outcome;
            transfer.next = transfer.steps.size();
            transfer.has_notice = false;
            settle(transfer);
        }
    }
}

} // namespace strandway
