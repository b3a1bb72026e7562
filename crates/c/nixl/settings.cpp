// The settings of the node: the backend's parameters. The library adds variables of the environment and the host's
// interfaces to them.
#include "plugin.h"

namespace strandway {

namespace {

// Parameters that the library knows by name.
constexpr const char *NAMES[] = {"planes",     "ifname",  "key_file", "key",         "profile",
                                 "protection", "payload", "rate",     "base_rtt_us"};
// Silence after which a peer is given up, in milliseconds.
constexpr const char *PEER_TIMEOUT = "peer_timeout_ms";
constexpr uint32_t PEER_TIMEOUT_MS = 800;

} // namespace

std::string open_node(const nixl::Params &params, sw_config &config, sw_node_t *node) {
    std::vector<sw_setting> settings;
    for (const auto &[name, value] : params) {
        if (name != PEER_TIMEOUT && default_params().count(name)) {
            settings.push_back({name.c_str(), value.c_str()});
        }
    }
    config.peer_timeout_ms = PEER_TIMEOUT_MS;
    const auto timeout = params.find(PEER_TIMEOUT);
    if (timeout != params.end() && !timeout->second.empty()) {
        const std::string &text = timeout->second;
        if (text.size() > 9 || text.find_first_not_of("0123456789") != std::string::npos) {
            return std::string(PEER_TIMEOUT) + " is " + text + ": give a number";
        }
        config.peer_timeout_ms = static_cast<uint32_t>(std::stoul(text));
    }
    config.handshake_timeout_ms = config.peer_timeout_ms;
    const int32_t code = sw_node_open_by_name(&config, settings.data(), settings.size(), node);
    return code == SW_OK ? "" : sw_last_error();
}

nixl::Params default_params() {
    nixl::Params all = {{PEER_TIMEOUT, ""}};
    for (const char *name : NAMES) {
        all[name] = "";
    }
    return all;
}

} // namespace strandway
