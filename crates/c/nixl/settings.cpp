// The settings of the node: parameters of the backend, then variables of the environment, then the interfaces.
#include "plugin.h"
#include <algorithm>
#include <arpa/inet.h>
#include <cstdlib>
#include <fstream>
#include <ifaddrs.h>
#include <iterator>
#include <map>
#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

namespace strandway {

namespace {

constexpr size_t PLANES_MAX = 8;
// The largest payload that is taken from an MTU: what loopback and jumbo frames do best with.
constexpr uint32_t PAYLOAD_MAX = 4096;
// Bytes of headers beside the payload, with every profile and protection.
constexpr uint32_t HEADERS = 156;

std::string value(const nixl::Params &params, const char *name, const char *variable) {
    const auto found = params.find(name);
    if (found != params.end() && !found->second.empty()) {
        return found->second;
    }
    const char *set = variable ? std::getenv(variable) : nullptr;
    return set ? set : "";
}

struct Interface {
    std::string name;
    std::string address;
    bool is_loopback;
    uint32_t mtu;
};

uint32_t mtu_of(const std::string &name) {
    ifreq request = {};
    name.copy(request.ifr_name, IFNAMSIZ - 1);
    const int handle = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    const bool known = handle >= 0 && ioctl(handle, SIOCGIFMTU, &request) == 0;
    if (handle >= 0) {
        close(handle);
    }
    return known ? static_cast<uint32_t>(request.ifr_mtu) : 1500;
}

// IPv4 and global IPv6 addresses of interfaces that are up.
std::vector<Interface> interfaces() {
    std::vector<Interface> found;
    ifaddrs *all = nullptr;
    if (getifaddrs(&all) != 0) {
        return found;
    }
    for (const ifaddrs *one = all; one; one = one->ifa_next) {
        if (!one->ifa_addr || !(one->ifa_flags & IFF_UP)) {
            continue;
        }
        char text[INET6_ADDRSTRLEN] = {};
        std::string address;
        if (one->ifa_addr->sa_family == AF_INET) {
            inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in *>(one->ifa_addr)->sin_addr, text, sizeof text);
            address = text;
        } else if (one->ifa_addr->sa_family == AF_INET6) {
            const in6_addr &ip = reinterpret_cast<const sockaddr_in6 *>(one->ifa_addr)->sin6_addr;
            if (IN6_IS_ADDR_LINKLOCAL(&ip)) {
                continue;
            }
            inet_ntop(AF_INET6, &ip, text, sizeof text);
            address = "[" + std::string(text) + "]";
        } else {
            continue;
        }
        found.push_back({one->ifa_name, address, (one->ifa_flags & IFF_LOOPBACK) != 0, mtu_of(one->ifa_name)});
    }
    freeifaddrs(all);
    return found;
}

// Interfaces that only the containers of one host share.
bool is_of_one_host(const std::string &name) {
    for (const char *start : {"docker", "br-", "virbr", "podman", "cni", "lxcbr", "flannel", "cali", "tun", "wg"}) {
        if (name.rfind(start, 0) == 0) {
            return true;
        }
    }
    return false;
}

std::vector<std::string> split(const std::string &text) {
    std::vector<std::string> parts;
    size_t from = 0;
    while (from <= text.size()) {
        const size_t to = std::min(text.find(',', from), text.size());
        parts.push_back(text.substr(from, to - from));
        from = to + 1;
    }
    return parts;
}

// Chooses planes, and the payload that fits their MTUs.
std::string choose_planes(const nixl::Params &params, Settings &into) {
    const std::vector<Interface> all = interfaces();
    const std::string listed = value(params, "planes", "STRANDWAY_PLANES");
    const std::string named = value(params, "ifname", "STRANDWAY_IFNAME");
    uint32_t mtu = 65536;
    if (!listed.empty()) {
        for (const std::string &address : split(listed)) {
            const bool has_port = address.find("]:") != std::string::npos ||
                                  std::count(address.begin(), address.end(), ':') == 1;
            const bool is_bare = !has_port && address.find(':') != std::string::npos && address[0] != '[';
            const std::string host = is_bare ? "[" + address + "]" : address;
            into.planes.push_back(has_port ? address : host + ":0");
            for (const Interface &one : all) {
                if (into.planes.back().rfind(one.address + ":", 0) == 0) {
                    mtu = std::min(mtu, one.mtu);
                }
            }
        }
    } else {
        // One address of each interface: of IPv4 if all have one.
        const std::vector<std::string> names = named.empty() ? std::vector<std::string>() : split(named);
        std::map<std::string, std::map<bool, Interface>> each;
        for (const Interface &one : all) {
            const bool wanted = named.empty() ? !one.is_loopback && !is_of_one_host(one.name)
                                              : std::count(names.begin(), names.end(), one.name) > 0;
            if (wanted) {
                each[one.name].emplace(one.address[0] == '[', one);
            }
        }
        for (const std::string &name : names) {
            if (each.find(name) == each.end()) {
                return "STRANDWAY_IFNAME has " + name + ": no such interface is up";
            }
        }
        const bool four =
            std::all_of(each.begin(), each.end(), [](const auto &one) { return one.second.count(false); });
        for (const auto &[name, addresses] : each) {
            const auto found = addresses.find(!four);
            if (found != addresses.end()) {
                into.planes.push_back(found->second.address + ":0");
                mtu = std::min(mtu, found->second.mtu);
            }
        }
        if (into.planes.empty()) {
            into.planes.push_back("127.0.0.1:0");
        }
    }
    if (into.planes.size() > PLANES_MAX) {
        return std::to_string(into.planes.size()) + " planes, but a node has 8 at most: set STRANDWAY_IFNAME";
    }
    into.payload = std::min(PAYLOAD_MAX, (mtu - std::min(mtu, HEADERS)) / 4 * 4);
    return "";
}

std::string read_key(const nixl::Params &params, Settings &into) {
    const std::string file = value(params, "key_file", "STRANDWAY_KEY_FILE");
    if (!file.empty()) {
        std::ifstream stream(file, std::ios::binary);
        if (!stream) {
            return "STRANDWAY_KEY_FILE is " + file + ": the file cannot be read";
        }
        into.key.assign(std::istreambuf_iterator<char>(stream), {});
        return "";
    }
    const std::string digits = value(params, "key", "STRANDWAY_KEY");
    if (digits.empty()) {
        return "no key: `head -c 32 /dev/urandom > key`, copy it to all hosts, and set STRANDWAY_KEY_FILE";
    }
    if (digits.size() % 2 != 0 || digits.find_first_not_of("0123456789abcdefABCDEF") != std::string::npos) {
        return "STRANDWAY_KEY is not made of pairs of hexadecimal digits";
    }
    for (size_t i = 0; i < digits.size(); i += 2) {
        into.key.push_back(static_cast<uint8_t>(std::stoul(digits.substr(i, 2), nullptr, 16)));
    }
    return "";
}

std::string read_number(const nixl::Params &params, const char *name, const char *variable, uint32_t &into) {
    const std::string text = value(params, name, variable);
    if (text.empty()) {
        return "";
    }
    if (text.size() > 9 || text.find_first_not_of("0123456789") != std::string::npos) {
        return std::string(name) + " is " + text + ": give a number";
    }
    into = static_cast<uint32_t>(std::stoul(text));
    return "";
}

} // namespace

std::string read_settings(const nixl::Params &params, Settings &into) {
    for (const std::string &wrong : {choose_planes(params, into), read_key(params, into),
                                     read_number(params, "payload", "STRANDWAY_PAYLOAD", into.payload),
                                     read_number(params, "rate_mbps", "STRANDWAY_RATE_MBPS", into.rate_mbps),
                                     read_number(params, "base_rtt_us", "STRANDWAY_BASE_RTT_US", into.base_rtt_us),
                                     read_number(params, "peer_timeout_ms", nullptr, into.peer_timeout_ms)}) {
        if (!wrong.empty()) {
            return wrong;
        }
    }
    into.profile = value(params, "profile", "STRANDWAY_PROFILE");
    into.protection = value(params, "protection", "STRANDWAY_PROTECTION");
    return "";
}

nixl::Params default_params() {
    return {{"planes", ""},  {"ifname", ""},     {"key_file", ""}, {"key", ""},       {"profile", ""},
            {"payload", ""}, {"protection", ""}, {"rate_mbps", ""},
            {"base_rtt_us", ""}, {"peer_timeout_ms", ""}};
}

} // namespace strandway
