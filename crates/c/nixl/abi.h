// The interface between NIXL and its backends, as far as this plug-in needs it: NIXL 1.0 to 1.5, plug-in API 1.
//
// Written down by hand, because NIXL's wheels have no headers. Only layouts matter: the order of virtual functions and
// of fields. Names are ours. `tests/nixl.py` loads the real library, which shows that the two fit.
#ifndef STRANDWAY_NIXL_ABI_H
#define STRANDWAY_NIXL_ABI_H

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace nixl {

enum Kind : unsigned { DRAM };
enum Operation : unsigned { READ, WRITE };

enum Status : int {
    IN_PROGRESS = 1,
    SUCCESS = 0,
    INVALID = -2,
    BACKEND = -3,
    NOT_FOUND = -4,
    NOT_ALLOWED = -6,
    REPOST_ACTIVE = -7,
    NOT_SUPPORTED = -9,
    REMOTE_DISCONNECT = -10,
};

using Params = std::unordered_map<std::string, std::string>;
using Kinds = std::vector<Kind>;
using Notices = std::vector<std::pair<std::string, std::string>>;

struct PostOptions {
    std::string notice;
    bool has_notice = false;
    std::string custom;
};

struct InitParams {
    std::string agent;
    std::string type;
    Params *params = nullptr;
    bool has_thread = false;
    uint64_t thread_delay = 0;
    unsigned sync = 0;
    bool telemetry = false;
};

// The state of a transfer.
struct Request {
    virtual ~Request() = default;
};

// What a backend keeps for memory.
struct Metadata {
    bool is_private;
    explicit Metadata(bool is_private) : is_private(is_private) {}
    virtual ~Metadata() = default;
};

struct Descriptor {
    uintptr_t address;
    size_t length;
    uint64_t device;
    Metadata *metadata;
};

struct BlobDescriptor {
    uintptr_t address;
    size_t length;
    uint64_t device;
    std::string blob;
};

// A list that NIXL has made; only looked at.
struct List {
    const void *functions;
    Kind kind;
    std::vector<Descriptor> descriptors;
};

class Engine {
    std::string type_;
    Params params_;
    std::vector<uint64_t> telemetry_;
    std::mutex telemetry_lock_;

  protected:
    bool failed = false;
    const std::string agent;
    const bool has_telemetry;

  public:
    explicit Engine(const InitParams *init)
        : type_(init->type), params_(*init->params), agent(init->agent), has_telemetry(init->telemetry) {}
    Engine(const Engine &) = delete;
    void operator=(const Engine &) = delete;

    virtual ~Engine() = default;
    virtual bool supports_remote() const = 0;
    virtual bool supports_local() const = 0;
    virtual bool supports_notices() const = 0;
    virtual Kinds kinds() const = 0;
    virtual Status register_memory(const BlobDescriptor &, const Kind &, Metadata *&) = 0;
    virtual Status deregister_memory(Metadata *) = 0;
    virtual Status connect(const std::string &) = 0;
    virtual Status disconnect(const std::string &) = 0;
    virtual Status unload(Metadata *) = 0;
    virtual Status prepare(const Operation &, const List &, const List &, const std::string &, Request *&,
                           const PostOptions *) const = 0;
    virtual Status post(const Operation &, const List &, const List &, const std::string &, Request *&,
                        const PostOptions *) const = 0;
    virtual Status check(Request *) const = 0;
    virtual Status release(Request *) const = 0;
    virtual Status view_remote(const void *, void *&, const PostOptions *) const { return NOT_SUPPORTED; }
    virtual Status view_local(const void *, void *&, const PostOptions *) const { return NOT_SUPPORTED; }
    virtual void release_view(void *) const {}
    virtual Status public_data(const Metadata *, std::string &) const = 0;
    virtual Status connection_info(std::string &) const = 0;
    virtual Status load_connection_info(const std::string &, const std::string &) = 0;
    virtual Status load_remote(const BlobDescriptor &, const Kind &, const std::string &, Metadata *&) = 0;
    virtual Status load_local(Metadata *, Metadata *&) = 0;
    virtual Status take_notices(Notices &) = 0;
    virtual Status send_notice(const std::string &, const std::string &) const = 0;
    virtual Status query(const void *, void *) const { return NOT_SUPPORTED; }
    virtual Status estimate(const Operation &, const List &, const List &, const std::string &, Request *const &,
                            std::chrono::microseconds &, std::chrono::microseconds &, int &, const void *) const {
        return NOT_SUPPORTED;
    }
};

struct Plugin {
    int api_version;
    Engine *(*create)(const InitParams *);
    void (*destroy)(Engine *);
    const char *(*name)();
    const char *(*version)();
    Params (*options)();
    Kinds (*kinds)();
};

} // namespace nixl

#endif // STRANDWAY_NIXL_ABI_H
