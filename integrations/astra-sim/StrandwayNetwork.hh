// ASTRA-sim's network interface on a fabric that Strandway simulates.
#pragma once

#include "astra-sim/common/AstraNetworkAPI.hh"
#include <cstdint>
#include <map>
#include <strandway_backend.h>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace AstraSimStrandway {

/// A function of ASTRA-sim with its argument.
struct Callback {
    void (*function)(void*) = nullptr;
    void* argument = nullptr;
};

/// The fabric, which all NPUs share: NPU n is host n of the scenario. A send and a receive belong together by sender,
/// receiver and tag: the n-th send to the n-th receive, in whatever order their messages arrive.
class Fabric {
  public:
    /// Opens a scenario, with changes of its keys such as "profile.name=uec". Problems end the process with a text.
    Fabric(const std::string& scenario, const std::vector<std::string>& changes);
    ~Fabric();

    uint32_t hosts() const;
    /// The rate of a NIC in GB/s.
    double bandwidth() const;
    /// The time of the event that is being handled, in ps.
    uint64_t now() const { return present; }

    /// Opens a connection before the run, as those of native workloads are; else its first message opens it.
    void connect(uint32_t from, uint32_t to);
    void send(uint32_t from, uint32_t to, uint64_t bytes, int tag, Callback sent);
    void receive(uint32_t from, uint32_t to, int tag, Callback received);
    void schedule(uint32_t host, uint64_t delay, Callback callback);
    void finished(uint32_t npu);

    /// Runs the simulation, and writes reports to files. True if all NPUs have finished their work.
    bool run(const std::vector<std::string>& reports);

  private:
    /// Sender, receiver, tag.
    using Pair = std::tuple<uint32_t, uint32_t, int>;

    /// A message on its way.
    struct Message {
        Pair pair;
        uint64_t place;
        Callback sent;
    };

    /// The messages between a pair: what was sent, what was asked for, and what only one of both ends knows of.
    struct Channel {
        uint64_t sends = 0;
        uint64_t receives = 0;
        std::map<uint64_t, Callback> waiting;
        std::map<uint64_t, bool> arrived;
    };

    static void on_event(void* fabric, const swb_event* event);
    void handle(const swb_event& event);
    void arrive(const Pair& pair, uint64_t place);

    swb_lab_t lab = 0;
    uint64_t present = 0;
    std::map<Pair, Channel> channels;
    std::map<uint64_t, Message> messages;
    /// Callbacks of timers, and the places of those that have expired.
    std::vector<Callback> timers;
    std::vector<uint64_t> unused;
    std::map<uint32_t, uint64_t> ended;
};

/// The network interface of one NPU.
class Network : public AstraSim::AstraNetworkAPI {
  public:
    Network(int rank, Fabric& fabric) : AstraNetworkAPI(rank), fabric(fabric) {}

    int sim_send(void*, uint64_t count, int, int dst, int tag, AstraSim::sim_request*, void (*handler)(void*),
                 void* argument) override {
        fabric.send(rank, dst, count, tag, {handler, argument});
        return 0;
    }

    int sim_recv(void*, uint64_t, int, int src, int tag, AstraSim::sim_request*, void (*handler)(void*),
                 void* argument) override {
        fabric.receive(src, rank, tag, {handler, argument});
        return 0;
    }

    void sim_schedule(AstraSim::timespec_t delta, void (*function)(void*), void* argument) override;

    AstraSim::timespec_t sim_get_time() override {
        return {AstraSim::NS, static_cast<long double>(fabric.now()) / 1000};
    }

    double get_BW_at_dimension(int) override { return fabric.bandwidth(); }

    void sim_notify_finished() override { fabric.finished(rank); }

  private:
    Fabric& fabric;
};

}  // namespace AstraSimStrandway
