#include "StrandwayNetwork.hh"
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>

using namespace AstraSimStrandway;

/// A failed call ends the process: there is nothing to go on with.
static void check(int32_t code) {
    if (code != SWB_OK) {
        std::fprintf(stderr, "[Strandway] %s\n", swb_last_error());
        std::exit(1);
    }
}

Fabric::Fabric(const std::string& scenario, const std::vector<std::string>& changes) {
    if (swb_abi_version() != SWB_ABI_VERSION) {
        std::fprintf(stderr, "[Strandway] the library has version %u of the interface, this program needs %u\n",
                     swb_abi_version(), SWB_ABI_VERSION);
        std::exit(1);
    }
    std::vector<const char*> texts;
    for (const auto& change : changes) {
        texts.push_back(change.c_str());
    }
    check(swb_open(scenario.c_str(), texts.data(), texts.size(), &lab));
}

Fabric::~Fabric() { swb_close(lab); }

uint32_t Fabric::hosts() const {
    uint32_t hosts = 0;
    check(swb_hosts(lab, &hosts));
    return hosts;
}

double Fabric::bandwidth() const {
    uint64_t rate = 0;
    check(swb_rate(lab, &rate));
    return static_cast<double>(rate) / 8e9;
}

void Fabric::connect(uint32_t from, uint32_t to) { check(swb_connect(lab, from, to)); }

void Fabric::send(uint32_t from, uint32_t to, uint64_t bytes, int tag, Callback sent) {
    const Pair pair{from, to, tag};
    const uint64_t place = channels[pair].sends++;
    if (from == to) {
        // Such bytes use no network.
        schedule(from, 0, sent);
        arrive(pair, place);
        return;
    }
    uint64_t message = 0;
    check(swb_post(lab, from, to, bytes, static_cast<uint32_t>(tag), &message));
    messages.emplace(message, Message{pair, place, sent});
}

void Fabric::receive(uint32_t from, uint32_t to, int tag, Callback received) {
    Channel& channel = channels[{from, to, tag}];
    const uint64_t place = channel.receives++;
    if (channel.arrived.erase(place) > 0) {
        schedule(to, 0, received);
    } else {
        channel.waiting.emplace(place, received);
    }
}

void Fabric::arrive(const Pair& pair, uint64_t place) {
    Channel& channel = channels[pair];
    const auto waiting = channel.waiting.find(place);
    if (waiting == channel.waiting.end()) {
        channel.arrived.emplace(place, true);
        return;
    }
    const Callback received = waiting->second;
    channel.waiting.erase(waiting);
    if (std::get<0>(pair) == std::get<1>(pair)) {
        schedule(std::get<1>(pair), 0, received);
    } else {
        received.function(received.argument);
    }
}

void Fabric::schedule(uint32_t host, uint64_t delay, Callback callback) {
    uint64_t place = timers.size();
    if (unused.empty()) {
        timers.push_back(callback);
    } else {
        place = unused.back();
        unused.pop_back();
        timers[place] = callback;
    }
    check(swb_schedule(lab, host, delay, place));
}

void Fabric::finished(uint32_t npu) { ended[npu] = now(); }

void Fabric::on_event(void* fabric, const swb_event* event) { static_cast<Fabric*>(fabric)->handle(*event); }

void Fabric::handle(const swb_event& event) {
    present = event.at;
    if (event.kind == SWB_TIMER) {
        const Callback callback = timers[event.number];
        unused.push_back(event.number);
        callback.function(callback.argument);
    } else if (event.kind == SWB_RECEIVED) {
        const auto message = messages.find(event.number);
        if (message != messages.end()) {
            arrive(message->second.pair, message->second.place);
        }
    } else if (event.kind == SWB_SENT) {
        // A message is acknowledged after it has arrived.
        const auto message = messages.find(event.number);
        if (message != messages.end()) {
            const Callback sent = message->second.sent;
            messages.erase(message);
            sent.function(sent.argument);
        }
    } else if (event.kind == SWB_FAILED) {
        std::fprintf(stderr, "[Strandway] the connection from %u to %u was given up at %llu ps\n", event.host,
                     event.peer, static_cast<unsigned long long>(event.at));
    }
}

bool Fabric::run(const std::vector<std::string>& reports) {
    check(swb_run(lab, &Fabric::on_event, this));
    for (const auto& report : reports) {
        check(swb_report(lab, report.c_str()));
    }
    swb_result result = {};
    check(swb_result_of(lab, &result));
    uint64_t last = 0;
    for (const auto& one : ended) {
        last = std::max(last, one.second);
    }
    std::printf("[Strandway] %zu NPUs finished, the last at %llu ps; %llu messages, %llu packet hops, digest %016llx\n",
                ended.size(), static_cast<unsigned long long>(last), static_cast<unsigned long long>(result.messages),
                static_cast<unsigned long long>(result.packet_hops), static_cast<unsigned long long>(result.digest));
    static const char* const ends[] = {"", "the time limit of the scenario ended the run", "the run was stopped",
                                       "messages can never arrive, and the run stalled"};
    if (result.end != SWB_FINISHED) {
        std::fprintf(stderr, "[Strandway] %s\n", ends[result.end < 4 ? result.end : 3]);
    }
    return result.end == SWB_FINISHED;
}

void Network::sim_schedule(AstraSim::timespec_t delta, void (*function)(void*), void* argument) {
    long double unit = 1e3L;  // ns, as ASTRA-sim always writes
    switch (delta.time_res) {
    case AstraSim::SE: unit = 1e12L; break;
    case AstraSim::MS: unit = 1e9L; break;
    case AstraSim::US: unit = 1e6L; break;
    case AstraSim::NS: unit = 1e3L; break;
    case AstraSim::FS: unit = 1e-3L; break;
    }
    fabric.schedule(rank, static_cast<uint64_t>(std::llroundl(delta.time_val * unit)), {function, argument});
}
