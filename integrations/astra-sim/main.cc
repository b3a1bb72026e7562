// ASTRA-sim with Strandway's simulated fabric as its network.
#include "StrandwayNetwork.hh"
#include "astra-sim/common/Logging.hh"
#include "astra-sim/system/Sys.hh"
#include "common/CmdLineParser.hh"
#include <algorithm>
#include <cstdio>
#include <functional>
#include <memory>
#include <numeric>
#include <remote_memory_backend/analytical/AnalyticalRemoteMemory.hh>

using namespace AstraSimStrandway;

int main(int argc, char* argv[]) {
    auto options = AstraSimAnalytical::CmdLineParser(argv[0]);
    options.get_options().add_options()("set", "A key of the scenario: --set profile.name=rocev2",
                                        cxxopts::value<std::vector<std::string>>()->default_value(""))(
        "logical-dims", "NPUs per dimension of ASTRA-sim's logical topology; default: one of all hosts",
        cxxopts::value<std::vector<int>>()->default_value("0"))(
        "connect", "Connections that are open from the start, as those of native workloads are: --connect 0-1,1-2",
        cxxopts::value<std::vector<std::string>>()->default_value(""))(
        "report", "Report files: .html, .json, .md, .txt, .csv, .pcapng",
        cxxopts::value<std::vector<std::string>>()->default_value(""));
    options.parse(argc, argv);
    const auto texts = [&options](const char* name) {
        auto all = options.get<std::vector<std::string>>(name);
        all.erase(std::remove(all.begin(), all.end(), std::string()), all.end());
        return all;
    };

    AstraSim::LoggerFactory::init(options.get<std::string>("logging-configuration"),
                                  options.get<std::string>("logging-folder"));
    Fabric fabric(options.get<std::string>("network-configuration"), texts("set"));
    auto dims = options.get<std::vector<int>>("logical-dims");
    if (dims.size() == 1 && dims[0] == 0) {
        dims = {static_cast<int>(fabric.hosts())};
    }
    const auto npus = std::accumulate(dims.begin(), dims.end(), 1L, std::multiplies<long>());
    if (npus < 1 || npus > static_cast<long>(fabric.hosts())) {
        std::fprintf(stderr, "[Strandway] %ld NPUs, but the fabric has %u hosts\n", npus, fabric.hosts());
        return 1;
    }
    for (const auto& pair : texts("connect")) {
        unsigned from = 0, to = 0;
        if (std::sscanf(pair.c_str(), "%u-%u", &from, &to) != 2) {
            std::fprintf(stderr, "[Strandway] --connect %s: write two hosts, such as 0-1\n", pair.c_str());
            return 1;
        }
        fabric.connect(from, to);
    }
    const auto queues = std::vector<int>(dims.size(), options.get<int>("num-queues-per-dim"));
    const auto memory = std::make_unique<Analytical::AnalyticalRemoteMemory>(
        options.get<std::string>("remote-memory-configuration"));

    std::vector<std::unique_ptr<Network>> networks;
    std::vector<AstraSim::Sys*> systems;
    for (int npu = 0; npu < npus; npu++) {
        networks.push_back(std::make_unique<Network>(npu, fabric));
        systems.push_back(new AstraSim::Sys(
            npu, options.get<std::string>("workload-configuration"),
            options.get<std::string>("comm-group-configuration"), options.get<std::string>("system-configuration"),
            memory.get(), networks.back().get(), dims, queues, options.get<double>("injection-scale"),
            options.get<double>("comm-scale"), options.get<bool>("rendezvous-protocol")));
    }
    for (auto* system : systems) {
        system->workload->fire();
    }
    const bool done = fabric.run(texts("report"));
    for (auto* system : systems) {
        delete system;
    }
    AstraSim::LoggerFactory::shutdown();
    return done ? 0 : 1;
}
