// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
//
// The work of a fabric's port beyond shaping. `port` runs where packets leave a switch: it sends control before data, marks
// (ECN) and trims, by the bytes that wait. `burst` runs where packets arrive: it loses several in a row. queue.rs compiles
// it once for each set of the numbers below. It includes no file, so that only a compiler is needed.

#ifndef CONTROL
#define CONTROL 48 // DSCP of control packets; trimmed ones have this or more
#endif
#ifndef TRIMMED
#define TRIMMED CONTROL // DSCP of packets that are trimmed here
#endif
#ifndef KEEP
#define KEEP 64 // bytes of UDP payload that trimming leaves
#endif
#ifndef LIMIT
#define LIMIT 0 // a packet that would make more bytes than this wait is trimmed; 0: none is
#endif
#ifndef HIGH
#define LOW 0	 // if fewer bytes wait, no packet is marked
#define HIGH 0	 // ... from this many on, every packet is; 0: none ever is
#define CHANCE 0 // of 2^16: probability just below HIGH, rising linearly from zero at LOW
#endif
#ifndef AFTER_LOSS
#define AFTER_NONE 0 // of 2^32: probability of a loss after a packet that was not lost
#define AFTER_LOSS 0 // ... and after one that was
#endif

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

#define SECTION(name) __attribute__((section(name), used))

// Only the fields that are read. The loader fills in where the running kernel has them.
#define KERNEL __attribute__((preserve_access_index))
struct __sk_buff {
	u32 len, mark, priority, ifindex, gso_segs;
} KERNEL;
struct gnet_stats_queue {
	u32 backlog;
} KERNEL;
struct Qdisc {
	struct gnet_stats_queue qstats;
} KERNEL;
struct netdev_queue {
	struct Qdisc *qdisc;
} KERNEL;
struct net_device {
	struct netdev_queue *_tx;
} KERNEL;
struct sk_buff {
	struct net_device *dev;
} KERNEL;

// The kernel's helpers, with the numbers of its interface.
static u32 (*const random_word)(void) = (void *)7;
static long (*const store)(void *skb, u32 at, const void *from, u32 bytes, u64 flags) = (void *)9;
static long (*const redirect)(u32 ifindex, u64 flags) = (void *)23;
static long (*const load)(const void *skb, u32 at, void *to, u32 bytes) = (void *)26;
static long (*const change_tail)(void *skb, u32 bytes, u64 flags) = (void *)38;
extern void *bpf_cast_to_kern_ctx(void *skb) __attribute__((section(".ksyms")));

enum { PASS = -1, DROP = 2 }; // PASS: other filters may follow, which copy multicast
enum { ETHERNET = 14, IPV6 = 40, UDP = 8, PROTOCOL_UDP = 17, PROTOCOL_IPV6 = 41, NOT_CAPABLE = 0, CE = 3 };
// MRC in IPv6: inner IPv6, UDP, BTH, METH and TSETH stay (mrc.md). The inner lengths stay those of the whole packet.
enum { MRC_KEEP = 40 + 8 + 12 + 4 + 4 };
// Classes of the port's queueing discipline: 1:10, 1:20, 1:30.
enum { CLASS_CONTROL = 0x10010, CLASS_DATA = 0x10020, CLASS_TRIMMED = 0x10030 };
enum { CUT_HERE = 0x7c };

static int trim(struct __sk_buff *skb, u32 head)
{
	const u32 udp = ETHERNET + IPV6;
	const u16 no_checksum = 0;
	u32 rest = UDP + KEEP;
	u16 length;
	u8 protocol = 0;

	if (load(skb, ETHERNET + 6, &protocol, 1) || (protocol != PROTOCOL_UDP && protocol != PROTOCOL_IPV6))
		return 0;
	if (protocol == PROTOCOL_IPV6)
		rest = MRC_KEEP;
	// A packet that is hardly longer stays as it is: probes, for example. A packet that stands for several cannot be cut, and
	// hosts send none.
	if (skb->len <= udp + rest + KEEP || skb->gso_segs > 1 || change_tail(skb, udp + rest, 0))
		return 0;
	length = __builtin_bswap16(rest);
	head = __builtin_bswap32((head & ~(63u << 22)) | TRIMMED << 22);
	store(skb, ETHERNET, &head, 4, 0);
	store(skb, ETHERNET + 4, &length, 2, 0);
	if (protocol == PROTOCOL_IPV6)
		return 1;
	store(skb, udp + 4, &length, 2, 0);
	store(skb, udp + 6, &no_checksum, 2, 0);
	return 1;
}

// judgement: begin
// The judgement on a data packet that finds bytes waiting in the port; in Rust: strandway_fabric::judgement. A test asks both the
// same questions. Packets beyond LIMIT that cannot be trimmed are left to the queue's own limit, which drops them.
enum verdict { QUEUE, MARK, TRIM };

static enum verdict judge(u32 waiting, u32 bytes)
{
	const u32 with = waiting + bytes;

	if (LIMIT && with > LIMIT)
		return TRIM;
	if (!HIGH || (with < HIGH && with <= LOW))
		return QUEUE;
	if (with >= HIGH || (random_word() >> 16) * (u64)(HIGH - LOW) < CHANCE * (u64)(with - LOW))
		return MARK;
	return QUEUE;
}
// judgement: end

SECTION("tc/port") int port(struct __sk_buff *skb)
{
	struct sk_buff *whole = bpf_cast_to_kern_ctx(skb);
	enum verdict verdict;
	u32 head, ecn;

	if (load(skb, ETHERNET, &head, 4))
		return PASS;
	head = __builtin_bswap32(head);
	if ((head >> 22 & 63) >= CONTROL) {
		skb->priority = skb->mark == CUT_HERE ? CLASS_TRIMMED : CLASS_CONTROL;
		return PASS;
	}
	verdict = judge(whole->dev->_tx->qdisc->qstats.backlog, skb->len);
	if (verdict == TRIM && trim(skb, head)) {
		// The queue would charge the length from before the cut, so the packet is sent again, out of this device.
		skb->mark = CUT_HERE;
		return redirect(skb->ifindex, 0);
	}
	skb->priority = CLASS_DATA;
	ecn = head >> 20 & CE;
	if ((verdict == MARK || (verdict == TRIM && HIGH)) && ecn != NOT_CAPABLE && ecn != CE) {
		// Not with the kernel's helper, which skips copies of a packet, since they share its bytes until one of them is written.
		head = __builtin_bswap32(head | CE << 20);
		store(skb, ETHERNET, &head, 4, 0);
	}
	return PASS;
}

static u32 lost;

SECTION("tc/burst") int burst(struct __sk_buff *skb)
{
	lost = random_word() < (lost ? (u64)AFTER_LOSS : (u64)AFTER_NONE);
	return lost ? DROP : PASS;
}

char _license[] SECTION("license") = "GPL";
