-- Wireshark dissector for the captures that `strandway run --pcap` writes: UEC, STrack, MRC and RoCEv2; and for MRC's published
-- layout (IPv6 in IPv6, UDP port 4791) between any addresses, as nodes with `layout = "mrc"` send it.
--
-- Layouts are those of crates/wire/src/{uec,strack,mrc,rocev2,control,part}.rs inside the frames of crates/wire/src/frame.rs.
-- Only frames between addresses of the simulator's prefix (fd53:7472:616e::/48) are taken; all others go where they
-- would go without this file. Made for Wireshark and tshark 4.0 and later; install as README.md beside this file says.

local strandway = Proto("strandway", "Strandway transport")

strandway.prefs.header = Pref.uint("Simulated header bytes", 64, "profile.transport.header of the run")
strandway.prefs.control = Pref.uint("Simulated control packet bytes", 64, "profile.transport.control of the run")

local DSCP_TRIMMED, DSCP_TRIMMED_AT_LAST_HOP = 44, 45
local CE = 3
local ICRC = 4
local EV_LOW = 4096 -- the low 12 bits of the entropy value are in the UDP source port, the upper 12 in the flow label

local f = {
    format = ProtoField.string("strandway.format", "Wire format"),
    type = ProtoField.string("strandway.type", "Packet type"),
    source = ProtoField.uint32("strandway.source", "Source host"),
    destination = ProtoField.uint32("strandway.destination", "Destination host"),
    plane = ProtoField.uint8("strandway.plane", "Plane"),
    ev = ProtoField.uint32("strandway.ev", "Entropy value (EV)", base.HEX),
    simulated = ProtoField.uint32("strandway.simulated", "Bytes on the simulated wire"),
    connection = ProtoField.uint32("strandway.connection", "Connection, as its receiver numbers it"),
    psn = ProtoField.uint32("strandway.psn", "PSN"),
    message = ProtoField.uint32("strandway.message", "Message"),
    offset = ProtoField.uint64("strandway.offset", "Offset in the message"),
    length = ProtoField.uint32("strandway.length", "Payload bytes"),
    cumulative = ProtoField.uint32("strandway.cumulative", "Next PSN expected (EPSN)"),
    sack_base = ProtoField.uint32("strandway.sack_base", "SACK base PSN"),
    sack = ProtoField.uint64("strandway.sack", "SACK bits", base.HEX),
    acked = ProtoField.uint32("strandway.acked", "PSN that caused the acknowledgement"),
    acked_plane = ProtoField.uint8("strandway.acked_plane", "Plane of that packet"),
    acked_ev = ProtoField.uint32("strandway.acked_ev", "EV of that packet", base.HEX),
    received = ProtoField.uint32("strandway.received", "New payload received, in units of 256 B"),
    out_of_order = ProtoField.uint32("strandway.out_of_order", "Packets held above the EPSN"),
    reason = ProtoField.string("strandway.reason", "NACK reason"),
    number = ProtoField.uint32("strandway.number", "Number"),
    port_status = ProtoField.uint32("strandway.port_status", "Ports that are up", base.HEX),
    opcode = ProtoField.uint8("strandway.opcode", "Opcode", base.HEX),
    qp = ProtoField.uint32("strandway.qp", "Destination queue pair"),
    letter = ProtoField.string("strandway.letter", "Letter"),
    sequence = ProtoField.uint32("strandway.sequence", "Sequence number of the stretch"),
    packet = ProtoField.uint32("strandway.packet", "Packet within the message"),
    packets = ProtoField.uint32("strandway.packets", "Packets of the message"),
    tail = ProtoField.uint32("strandway.tail", "Payload bytes of the message's last packet"),
    plan = ProtoField.uint8("strandway.plan", "Plan by which the message is cut and coded"),
    first = ProtoField.uint32("strandway.first", "First receive"),
    count = ProtoField.uint32("strandway.count", "Receives"),
    chunks_below = ProtoField.uint32("strandway.chunks.below", "All chunks below this one are here"),
    chunks_base = ProtoField.uint32("strandway.chunks.base", "Chunk of bit 0"),
    chunks = ProtoField.uint64("strandway.chunks", "Chunks that are here, from there on", base.HEX),
    newest = ProtoField.uint32("strandway.newest", "Chunk that was complete last"),
    held = ProtoField.uint32("strandway.held", "For how long, in us"),
    parts_before = ProtoField.uint32("strandway.parts.before", "Parts that had come with that one"),
    parts = ProtoField.uint32("strandway.parts", "Parts that have come"),
    missing = ProtoField.string("strandway.missing", "Missing chunks"),
    whole = ProtoField.bool("strandway.whole", "Whole, rather than given up"),
    words = ProtoField.string("strandway.words", "Words of a program"),
    address = ProtoField.uint64("strandway.address", "Address (RETH)", base.HEX),
    key = ProtoField.uint32("strandway.key", "Key (RETH)", base.HEX),
    message_length = ProtoField.uint32("strandway.message_length", "Bytes of the whole message"),
    msn = ProtoField.uint32("strandway.msn", "MSN"),
    rqmsn = ProtoField.uint32("strandway.rqmsn", "RQMSN"),
    immediate = ProtoField.uint32("strandway.immediate", "Immediate"),
    tick = ProtoField.uint32("strandway.tick", "Time stamp, in ticks of 128 ns"),
    syndrome = ProtoField.uint8("strandway.syndrome", "Syndrome", base.HEX),
    mpr = ProtoField.uint32("strandway.mpr", "Range of PSNs, in units of 128"),
    penalty = ProtoField.uint32("strandway.penalty", "Penalty for the window"),
    icrc = ProtoField.string("strandway.icrc", "ICRC"),
    flags = ProtoField.string("strandway.flags", "Flags"),
}
-- One-bit facts, in the order of `Flags` in crates/proto/src/packet.rs.
local FLAGS = {
    "ack_request", "retransmitted", "last", "trimmed", "trimmed_at_last_hop", "marked", "probe_answer", "hole", "ce",
    "always_skip", "parity",
}
local flag_fields = {}
for _, name in ipairs(FLAGS) do
    flag_fields[name] = ProtoField.bool("strandway.flags." .. name, (name:gsub("_", " ")))
end
local all = {}
for _, field in pairs(f) do all[#all + 1] = field end
for _, field in pairs(flag_fields) do all[#all + 1] = field end
strandway.fields = all

local short = ProtoExpert.new("strandway.short", "The header is cut off", expert.group.MALFORMED, expert.severity.ERROR)
local unknown = ProtoExpert.new("strandway.unknown", "Not a packet of this format", expert.group.MALFORMED, expert.severity.ERROR)
local wrong_icrc = ProtoExpert.new("strandway.wrong_icrc", "Wrong ICRC", expert.group.CHECKSUM, expert.severity.ERROR)
strandway.experts = { short, unknown, wrong_icrc }

local ipv6_source, ipv6_destination = Field.new("ipv6.src"), Field.new("ipv6.dst")
local ipv6_flow = Field.new("ipv6.flow")
local udp_length = Field.new("udp.length")
local ipv6_dscp, ipv6_ecn = Field.new("ipv6.tclass.dscp"), Field.new("ipv6.tclass.ecn")

-- Plane and host of an address, if it is the simulator's: fd53:7472:616e:PLANE::HOST.
local function host_of(address)
    local range = address.range
    if range(0, 4):uint() ~= 0xfd537472 or range(4, 2):uint() ~= 0x616e then return nil end
    return range(7, 1):uint(), range(12, 4):uint()
end

-- What the frame around the transport header says, or nil if it is not the simulator's.
local function outer(pinfo)
    local source, destination = ipv6_source(), ipv6_destination()
    if not source or not destination then return nil end
    local plane, from = host_of(source)
    local _, to = host_of(destination)
    if not plane or not to then return nil end
    local label, port = ipv6_flow().value, pinfo.src_port
    local ev = math.floor(label / 256) * EV_LOW + port % EV_LOW
    return { plane = plane, from = from, to = to, ev = ev, dscp = ipv6_dscp().value, ecn = ipv6_ecn().value }
end

-- Is bit `i` of `byte` set?
local function bit_of(byte, i) return math.floor(byte / 2 ^ i) % 2 == 1 end

-- The flags whose bits are set; `names` lists them from bit 0 on.
local function flags_of(byte, names, set)
    for i, name in ipairs(names) do
        if name and bit_of(byte, i - 1) then set[name] = true end
    end
    return set
end

local function add_path(tree, range)
    tree:add(f.acked_plane, range(0, 1))
    tree:add(f.acked_ev, range(1, 3))
end

-- A packet is { type, flags, info, tree items }: the readers below fill it and add what they read to the tree.

local KINDS = { uec = { [0] = "data", "ack", "nack", "cnp", "probe" },
    strack = { [0] = "data", "data", "probe", "ack", "nack", "cnp" } }
local UEC_FLAGS = {
    "ack_request", "retransmitted", "last", "trimmed", "trimmed_at_last_hop", "marked", "probe_answer", "hole",
}
local STRACK_FLAGS = {
    "ack_request", "last", "marked", "retransmitted", "probe_answer", "hole", "trimmed", "trimmed_at_last_hop",
}

-- UEC has a PSN in four bytes, the upper of which is zero; STrack in three, and a zero one behind.
local function own_layout(tvb, tree, format)
    local is_uec = format == "uec"
    if tvb:len() < 8 then return nil, short end
    local version = tvb(0, 1):bitfield(0, is_uec and 4 or 5)
    local code = is_uec and tvb(0, 1):bitfield(4, 4) or tvb(0, 1):bitfield(5, 3)
    local type = KINDS[format][code]
    if version ~= 1 or not type then return nil, unknown end
    local need = ({ data = 24, ack = 40, nack = 20, cnp = 8, probe = 12 })[type]
    if tvb:len() < need then return nil, short end
    local function psn(at) return is_uec and tvb(at + 1, 3) or tvb(at, 3) end
    local packet = { type = type, header = need, flags = flags_of(tvb(1, 1):uint(), is_uec and UEC_FLAGS or STRACK_FLAGS, {}) }
    if not is_uec and code == 1 then packet.flags.retransmitted = true end
    tree:add(f.connection, is_uec and tvb(4, 4) or tvb(4, 3))
    if type == "data" then
        packet.length = tvb(2, 2):uint()
        tree:add(f.psn, psn(8))
        tree:add(f.message, tvb(12, 4))
        tree:add(f.offset, tvb(16, 8))
        tree:add(f.length, tvb(2, 2))
        packet.info = string.format("PSN=%d message=%d offset=%s length=%d", psn(8):uint(), tvb(12, 4):uint(),
            tostring(tvb(16, 8):uint64()), packet.length)
    elseif type == "ack" then
        tree:add(f.cumulative, psn(8))
        tree:add(f.sack_base, psn(12))
        tree:add(f.sack, tvb(16, 8))
        tree:add(f.acked, psn(24))
        add_path(tree, tvb(28, 4))
        tree:add(f.received, tvb(32, 4))
        tree:add(f.out_of_order, tvb(36, 2))
        packet.info = string.format("EPSN=%d acked=%d", psn(8):uint(), psn(24):uint())
    elseif type == "nack" then
        tree:add(f.psn, psn(8))
        tree:add(f.cumulative, psn(12))
        add_path(tree, tvb(16, 4))
        packet.info = string.format("PSN=%d EPSN=%d", psn(8):uint(), psn(12):uint())
    elseif type == "probe" then
        tree:add(f.number, tvb(8, 4))
        packet.info = string.format("number=%d", tvb(8, 4):uint())
    end
    return packet
end

local MRC_TYPES = {
    [0xc6] = "data", [0xc7] = "data", [0xc9] = "data", [0xcb] = "data", [0xd8] = "operation", [0xd9] = "answer",
    [0xdc] = "ack", [0xdd] = "nack", [0xde] = "probe", [0x81] = "cnp",
}
local MRC_BYTES = { data = 36, operation = 28, answer = 48, ack = 48, nack = 32, probe = 28, cnp = 28 }
-- Where the standard has no bit: the byte before the queue pair.
local MRC_FLAGS = { "last", "trimmed", "trimmed_at_last_hop", "marked", "probe_answer", "hole", "always_skip" }
local MRC_REASONS = {
    [0x01] = "trimmed", [0x02] = "trimmed at the last hop", [0x06] = "no tracker", [0x07] = "no packet buffer",
    [0x0a] = "no other resource", [0x0b] = "PSN beyond the window", [0x19] = "fatal",
}
-- The simulator's connection 0 is this queue pair: 0 and 1 are reserved, and operations between NICs go to 2.
local MRC_FIRST_QP = 3

local function wrapped(psn) return psn % 0x1000000 end

local function mrc(tvb, tree)
    if tvb:len() < 12 then return nil, short end
    local opcode = tvb(0, 1):uint()
    local type = MRC_TYPES[opcode]
    if not type or tvb(1, 1):bitfield(4, 4) ~= 1 then return nil, unknown end
    local is_end = opcode == 0xc9 or opcode == 0xcb
    local need = MRC_BYTES[type] + (is_end and 4 or 0)
    if tvb:len() < need then return nil, short end
    local packet = { type = type, header = need, flags = flags_of(tvb(4, 1):uint(), MRC_FLAGS, {}) }
    local bits = tvb(8, 1):uint()
    packet.flags.ack_request = bit_of(bits, 7)
    packet.flags.retransmitted = bit_of(bits, 5)
    tree:add(f.opcode, tvb(0, 1))
    tree:add(f.qp, tvb(5, 3))
    local psn = tvb(9, 3):uint()
    if type == "operation" then
        tree:add(f.connection, tvb(20, 4))
    elseif type == "answer" then
        tree:add(f.connection, tvb(16, 4))
    else
        tree:add(f.connection, tvb(5, 3), tvb(5, 3):uint() - MRC_FIRST_QP)
    end
    if type == "data" then
        packet.flags.last = is_end
        packet.length = tvb(32, 4):uint()
        tree:add(f.psn, tvb(9, 3))
        tree:add(f.message, tvb(28, 4))
        tree:add(f.offset, tvb(20, 8))
        tree:add(f.length, tvb(32, 4))
        packet.info = string.format("PSN=%d message=%d offset=%s length=%d", psn, tvb(28, 4):uint(),
            tostring(tvb(20, 8):uint64()), packet.length)
    elseif type == "ack" then
        -- PSN is the last one below the EPSN; other sequence numbers are offsets from it.
        local first = tvb(12, 2):uint()
        packet.flags.marked = bit_of(first, 5)
        packet.flags.always_skip = bit_of(first, 6)
        packet.flags.probe_answer = bit_of(first, 1)
        local epsn = wrapped(psn + 1)
        tree:add(f.cumulative, tvb(9, 3), epsn)
        tree:add(f.sack_base, tvb(30, 2), wrapped(psn + tvb(30, 2):int()))
        tree:add(f.sack, tvb(32, 8))
        if packet.flags.probe_answer then
            tree:add(f.number, tvb(14, 2))
            packet.info = string.format("EPSN=%d probe=%d", epsn, tvb(14, 2):uint())
        else
            local acked = wrapped(psn + tvb(14, 2):int())
            tree:add(f.acked, tvb(14, 2), acked)
            packet.info = string.format("EPSN=%d acked=%d", epsn, acked)
        end
        add_path(tree, tvb(16, 4))
        tree:add(f.received, tvb(45, 3))
        tree:add(f.out_of_order, tvb(42, 2))
    elseif type == "nack" then
        local code = tvb(14, 1):uint()
        local above = tvb(24, 1):uint() * 256 + tvb(29, 1):uint()
        packet.flags.trimmed_at_last_hop = packet.flags.trimmed_at_last_hop or code == 0x02
        tree:add(f.psn, tvb(9, 3))
        tree:add(f.cumulative, tvb(9, 3), wrapped(psn - above))
        tree:add(f.reason, tvb(14, 1), MRC_REASONS[code] or "unknown")
        add_path(tree, tvb(16, 4))
        packet.info = string.format("PSN=%d EPSN=%d, %s", psn, wrapped(psn - above), MRC_REASONS[code] or "unknown")
    elseif type == "probe" then
        tree:add(f.number, tvb(16, 2))
        packet.info = string.format("number=%d", tvb(16, 2):uint())
    elseif type == "operation" then
        tree:add(f.number, tvb(9, 3))
        if tvb(13, 1):uint() == 0 then
            tree:add(f.port_status, tvb(16, 4))
            packet.info = string.format("number=%d port status=0x%x", psn, tvb(16, 4):uint())
        else
            packet.info = string.format("number=%d path probe", psn)
        end
    elseif type == "answer" then
        tree:add(f.number, tvb(9, 3))
        add_path(tree, tvb(20, 4))
        packet.info = string.format("number=%d", psn)
    end
    return packet
end

local ROCE_TYPES = { [0x06] = "data", [0x07] = "data", [0x08] = "data", [0x0a] = "data", [0x11] = "ack", [0x81] = "cnp", [0xc0] = "probe" }
local ROCE_FLAGS = { "hole", "probe_answer", "marked", "trimmed_at_last_hop", "trimmed", "last", "retransmitted", "ack_request" }
local ROCE_FIRST_QP = 2

-- What the simulator's RoCEv2 has beside the standard's fields, which Wireshark's own dissector shows.
local function rocev2(tvb, tree)
    if tvb:len() < 12 then return nil, short end
    local opcode = tvb(0, 1):uint()
    local type = ROCE_TYPES[opcode]
    if not type then return nil, unknown end
    local is_nack = type == "ack" and tvb:len() > 12 and tvb(12, 1):uint() == 0x60
    if is_nack then type = "nack" end
    local need = ({ data = 28, ack = 44, nack = 24, cnp = 28, probe = 16 })[type]
    if tvb:len() < need then return nil, short end
    local packet = { type = type, header = need, flags = flags_of(tvb(8, 1):uint(), ROCE_FLAGS, {}) }
    tree:add(f.connection, tvb(5, 3), tvb(5, 3):uint() - ROCE_FIRST_QP)
    local psn = tvb(9, 3):uint()
    if type == "data" then
        packet.flags.last = opcode == 0x08 or opcode == 0x0a
        packet.padding = tvb(1, 1):bitfield(2, 2)
        -- The RETH's length is that of the whole message on First and Only: the packet's own follows from the frame.
        packet.length = math.max(tvb:reported_len() - need - packet.padding - ICRC, 0)
        tree:add(f.psn, tvb(9, 3))
        tree:add(f.message, tvb(20, 4))
        tree:add(f.offset, tvb(12, 8))
        tree:add(f.length, packet.length):set_generated()
    elseif type == "ack" then
        tree:add(f.cumulative, tvb(9, 3), wrapped(psn + 1))
        tree:add(f.sack_base, tvb(16, 4))
        tree:add(f.sack, tvb(20, 8))
        tree:add(f.acked, tvb(28, 4))
        add_path(tree, tvb(32, 4))
        tree:add(f.received, tvb(36, 4))
        tree:add(f.out_of_order, tvb(40, 2))
    elseif type == "nack" then
        tree:add(f.cumulative, tvb(9, 3))
        tree:add(f.psn, tvb(16, 4))
        add_path(tree, tvb(20, 4))
    elseif type == "probe" then
        tree:add(f.number, tvb(12, 4))
    end
    return packet
end

-- Letters and parts of messages of one-way connections look the same in every format; the first byte tells.
local LETTER, PART = 0xfe, 0xd1
local LETTER_BYTES, PART_BYTES = 34, 28
local LETTERS = { [0] = "custom", "clear", "have", "recovered", "missing", "ask", "unknown", "over", "heard",
    "credit", "credit request" }
local PART_FLAGS = { "parity", "last", "retransmitted", "ack_request" }

local function letter(tvb, tree)
    if tvb:len() < LETTER_BYTES then return nil, short end
    local name = LETTERS[tvb(2, 2):bitfield(1, 15)]
    if tvb(1, 1):uint() ~= 1 or not name then return nil, unknown end
    local packet = { type = "letter", header = LETTER_BYTES, flags = { marked = tvb(2, 1):bitfield(0, 1) == 1 } }
    tree:add(f.connection, tvb(4, 4))
    tree:add(f.letter, tvb(2, 2), name)
    if name == "custom" then
        local words = {}
        for i = 0, 3 do words[#words + 1] = tostring(tvb(12 + 4 * i, 4):uint()) end
        tree:add(f.number, tvb(8, 2))
        tree:add(f.words, tvb(12, 16), table.concat(words, " "))
        packet.info = string.format("%s %d: %s", name, tvb(8, 2):uint(), table.concat(words, " "))
        return packet
    elseif name == "clear" then
        tree:add(f.first, tvb(8, 4))
        tree:add(f.count, tvb(12, 4))
        packet.info = string.format("%s first=%d count=%d", name, tvb(8, 4):uint(), tvb(12, 4):uint())
        return packet
    elseif name == "credit" then
        tree:add(f.count, tvb(8, 4))
        packet.info = string.format("%s granted=%d", name, tvb(8, 4):uint())
        return packet
    elseif name == "credit request" then
        tree:add(f.number, tvb(8, 2))
        packet.info = string.format("%s target=%d", name, tvb(8, 2):uint())
        return packet
    end
    tree:add(f.sequence, tvb(8, 4))
    packet.info = string.format("%s sequence=%d", name, tvb(8, 4):uint())
    if name == "have" or name == "recovered" then
        tree:add(f.chunks_below, tvb(12, 4))
        tree:add(f.chunks_base, tvb(16, 4))
        tree:add(f.chunks, tvb(20, 8))
        tree:add(f.newest, tvb(28, 4))
        tree:add(f.held, tvb(32, 2))
        packet.info = packet.info .. string.format(" below=%d", tvb(12, 4):uint())
    elseif name == "missing" then
        local runs = {}
        for i = 0, 2 do
            local start, length = tvb(12 + 4 * i, 4):uint(), tvb(24 + 2 * i, 2):uint()
            if length > 0 then runs[#runs + 1] = string.format("%d+%d", start, length) end
        end
        tree:add(f.missing, tvb(12, 18), table.concat(runs, " "))
        packet.info = packet.info .. " " .. table.concat(runs, " ")
    elseif name == "heard" then
        tree:add(f.packet, tvb(12, 4))
        tree:add(f.parts_before, tvb(16, 4))
        tree:add(f.parts, tvb(20, 4))
        tree:add(f.held, tvb(24, 2))
        packet.info = packet.info .. string.format(" packet=%d parts=%d", tvb(12, 4):uint(), tvb(20, 4):uint())
    elseif name == "over" then
        tree:add(f.whole, tvb(12, 1), tvb(12, 1):uint() == 1)
    end
    return packet
end

local function part(tvb, tree)
    if tvb:len() < PART_BYTES then return nil, short end
    local bits = tvb(1, 1):uint()
    if bits > 15 or tvb(8, 1):bitfield(0, 6) ~= 0 then return nil, unknown end
    local packet = { type = "part", header = PART_BYTES, flags = flags_of(bits, PART_FLAGS, {}), length = tvb(2, 2):uint() }
    tree:add(f.length, tvb(2, 2))
    tree:add(f.connection, tvb(4, 4))
    tree:add(f.sequence, tvb(8, 4))
    tree:add(f.message, tvb(12, 4))
    tree:add(f.packet, tvb(16, 4))
    tree:add(f.packets, tvb(20, 4))
    tree:add(f.tail, tvb(24, 2))
    tree:add(f.plan, tvb(26, 1))
    packet.info = string.format("sequence=%d message=%d packet=%d of %d length=%d", tvb(8, 4):uint(), tvb(12, 4):uint(),
        tvb(16, 4):uint(), tvb(20, 4):uint(), packet.length)
    return packet
end

-- The reader of a packet that looks the same in every format, if it is one.
local function common(tvb)
    return tvb:len() > 0 and ({ [LETTER] = letter, [PART] = part })[tvb(0, 1):uint()] or nil
end

-- Adds what every format has: hosts, path, flags, size in the simulator.
local function finish(tvb, tree, packet, around)
    local is_data = packet.type == "data" or packet.type == "part"
    if is_data then
        packet.flags.trimmed = around.dscp == DSCP_TRIMMED or around.dscp == DSCP_TRIMMED_AT_LAST_HOP
        packet.flags.trimmed_at_last_hop = around.dscp == DSCP_TRIMMED_AT_LAST_HOP
    end
    packet.flags.ce = around.ecn == CE
    local names = {}
    for _, name in ipairs(FLAGS) do
        if packet.flags[name] then names[#names + 1] = (name:gsub("_", " ")) end
    end
    local item = tree:add(f.flags, table.concat(names, ", ")):set_generated()
    for _, name in ipairs(FLAGS) do
        item:add(flag_fields[name], packet.flags[name] == true):set_generated()
    end
    tree:add(f.source, around.from):set_generated()
    tree:add(f.destination, around.to):set_generated()
    tree:add(f.plane, around.plane):set_generated()
    tree:add(f.ev, around.ev):set_generated()
    local whole = is_data and not packet.flags.trimmed
    local size = whole and packet.length + strandway.prefs.header or strandway.prefs.control
    tree:add(f.simulated, size):set_generated()
    return table.concat(names, ", ")
end

local NAMES = { uec = "UEC", strack = "STrack", mrc = "MRC", rocev2 = "RoCEv2", common = "Strandway" }

-- Dissects a packet of the simulator; `read` reads the transport header. Gives the bytes it took.
local function dissect(tvb, pinfo, tree, format, around, read)
    local subtree = tree:add(strandway, tvb(), "Strandway, " .. NAMES[format])
    subtree:add(f.format, NAMES[format]):set_generated()
    local packet, wrong = (common(tvb) or read)(tvb, subtree, format)
    if not packet then
        subtree:add_proto_expert_info(wrong)
        return tvb:len()
    end
    subtree:add(f.type, packet.type):set_generated()
    local flags = finish(tvb, subtree, packet, around)
    subtree:append_text(", " .. packet.type)
    if format ~= "rocev2" then
        pinfo.cols.protocol = NAMES[format]
        local info = string.format("%s %s plane=%d EV=0x%x", packet.type, packet.info or "", around.plane, around.ev)
        pinfo.cols.info = flags == "" and info or info .. " [" .. flags .. "]"
    end
    return tvb:len()
end

-- MRC's published layout: OCP MRC 1.0, as crates/wire/src/ocp.rs has it.
local OCP_TYPES = {
    [0xc6] = "data", [0xc7] = "data", [0xc8] = "data", [0xc9] = "data", [0xca] = "data", [0xcb] = "data",
    [0xd1] = "transport_ack", [0xd8] = "operation", [0xd9] = "answer", [0xdc] = "ack", [0xdd] = "nack", [0xde] = "probe",
}
local OCP_BYTES = { data = 32, transport_ack = 16, operation = 28, answer = 48, ack = 48, nack = 32, probe = 28 }

local CRC = {}
for i = 0, 255 do
    local state = i
    for _ = 1, 8 do
        local low = bit.band(state, 1)
        state = bit.rshift(state, 1)
        if low == 1 then state = bit.bxor(state, 0xedb88320) end
    end
    CRC[i] = state
end

-- Is the ICRC at the end of a whole UDP payload right? Fields that switches change count as ones: IBTA, annex A17.
local function has_icrc(tvb, pinfo, source, destination)
    local state = 0xffffffff
    local function add(byte) state = bit.bxor(bit.rshift(state, 8), CRC[bit.band(bit.bxor(state, byte), 0xff)]) end
    local function word(number) add(math.floor(number / 256)) add(number % 256) end
    local function range(bytes) for i = 0, bytes:len() - 1 do add(bytes:get_index(i)) end end
    for _ = 1, 8 do add(0xff) end
    add(0x6f) add(0xff) word(0xffff)
    word(tvb:len() + 8) add(17) add(0xff)
    range(source.range:bytes()) range(destination.range:bytes())
    word(pinfo.src_port) word(pinfo.dst_port) word(tvb:len() + 8) word(0xffff)
    local bytes = tvb:bytes()
    for i = 0, bytes:len() - ICRC - 1 do add(i == 4 and 0xff or bytes:get_index(i)) end
    local real = bit.bnot(state)
    for i = 0, 3 do
        if bit.band(bit.rshift(real, 8 * i), 0xff) ~= bytes:get_index(bytes:len() - ICRC + i) then return false end
    end
    return true
end

local function ocp(tvb, pinfo, tree, sources, destinations, label)
    local subtree = tree:add(strandway, tvb(), "Strandway, MRC as published")
    subtree:add(f.format, "MRC as published"):set_generated()
    local is_whole = tvb:len() + 8 == udp_length().value
    local opcode = tvb(0, 1):uint()
    local type = OCP_TYPES[opcode]
    local bits = tvb(8, 1):uint()
    local stamp = type == "data" and bit_of(bits, 4) and 4 or 0
    local has_immediate = opcode == 0xc9 or opcode == 0xcb
    local need = OCP_BYTES[type] + stamp + (has_immediate and 4 or 0)
    -- A switch leaves a trimmed packet its headers through the TSETH.
    local trimmed = not is_whole and type == "data" and tvb:len() >= 16 + stamp
    if tvb:len() < need and not trimmed then
        subtree:add_proto_expert_info(short)
        return tvb:len()
    end
    local flags = { ack_request = bit_of(bits, 7), retransmitted = bit_of(bits, 5), trimmed = trimmed }
    local psn, info = tvb(9, 3):uint(), ""
    subtree:add(f.opcode, tvb(0, 1))
    subtree:add(f.qp, tvb(5, 3))
    if type == "data" then
        flags.last = opcode >= 0xc8
        subtree:add(f.psn, tvb(9, 3))
        subtree:add(f.rqmsn, tvb(12, 2))
        subtree:add(f.msn, tvb(14, 2))
        if stamp > 0 then subtree:add(f.tick, tvb(16, 2)) end
        info = string.format("PSN=%d MSN=%d", psn, tvb(14, 2):uint())
        if not trimmed then
            local at = 16 + stamp
            local length = tvb:len() - need - tvb(1, 1):bitfield(2, 2) - ICRC
            subtree:add(f.address, tvb(at, 8))
            subtree:add(f.key, tvb(at + 8, 4))
            subtree:add(f.message_length, tvb(at + 12, 4))
            if has_immediate then subtree:add(f.immediate, tvb(at + 16, 4)) end
            subtree:add(f.length, length):set_generated()
            info = info .. string.format(" address=0x%s length=%d of %d", tvb(at, 8):uint64():tohex(), length,
                tvb(at + 12, 4):uint())
        end
    elseif type == "transport_ack" then
        subtree:add(f.cumulative, tvb(9, 3), wrapped(psn + 1))
        subtree:add(f.syndrome, tvb(12, 1))
        subtree:add(f.msn, tvb(13, 3))
        info = string.format("EPSN=%d completed=%d", wrapped(psn + 1), tvb(13, 3):uint())
    elseif type == "ack" then
        local first, last = tvb(12, 2):uint(), tvb(25, 3):uint()
        flags.marked, flags.always_skip, flags.probe_answer = bit_of(first, 5), bit_of(first, 6), bit_of(first, 1)
        subtree:add(f.cumulative, tvb(25, 3), wrapped(last + 1))
        subtree:add(f.sack_base, tvb(30, 2), wrapped(last + tvb(30, 2):int()))
        subtree:add(f.sack, tvb(32, 8))
        if flags.probe_answer then
            subtree:add(f.number, tvb(14, 2))
            info = string.format("EPSN=%d probe=%d", wrapped(last + 1), tvb(14, 2):uint())
        else
            subtree:add(f.acked, tvb(14, 2), wrapped(last + tvb(14, 2):int()))
            info = string.format("EPSN=%d acked=%d", wrapped(last + 1), wrapped(last + tvb(14, 2):int()))
        end
        subtree:add(f.acked_ev, tvb(16, 4))
        subtree:add(f.mpr, tvb(29, 1))
        subtree:add(f.tick, tvb(40, 2))
        subtree:add(f.out_of_order, tvb(42, 2), tvb(42, 2):bitfield(1, 15))
        subtree:add(f.penalty, tvb(44, 1), tvb(44, 1):bitfield(1, 7))
        subtree:add(f.received, tvb(45, 3))
    elseif type == "nack" then
        local code = tvb(14, 1):uint()
        flags.trimmed_at_last_hop = code == 0x02
        subtree:add(f.psn, tvb(25, 3))
        subtree:add(f.reason, tvb(14, 1), MRC_REASONS[code] or "unknown")
        subtree:add(f.acked_ev, tvb(16, 4))
        subtree:add(f.tick, tvb(30, 2))
        info = string.format("PSN=%d, %s", tvb(25, 3):uint(), MRC_REASONS[code] or "unknown")
    elseif type == "probe" then
        subtree:add(f.number, tvb(16, 2))
        subtree:add(f.tick, tvb(24, 2))
        info = string.format("number=%d", tvb(16, 2):uint())
    elseif type == "operation" then
        subtree:add(f.number, tvb(9, 3))
        if tvb(13, 1):bitfield(6, 2) == 0 then
            subtree:add(f.port_status, tvb(16, 4))
            info = string.format("number=%d port status=0x%x", psn, tvb(16, 4):uint())
        else
            info = string.format("number=%d path probe", psn)
        end
        subtree:add(f.tick, tvb(24, 2))
    elseif type == "answer" then
        subtree:add(f.number, tvb(9, 3))
        subtree:add(f.tick, tvb(40, 2))
        info = string.format("number=%d", psn)
    end
    -- CE is in the outer header.
    flags.ce = ipv6_ecn().value == CE
    local names = {}
    for _, name in ipairs(FLAGS) do
        if flags[name] then names[#names + 1] = (name:gsub("_", " ")) end
    end
    local item = subtree:add(f.flags, table.concat(names, ", ")):set_generated()
    for _, name in ipairs(FLAGS) do item:add(flag_fields[name], flags[name] == true):set_generated() end
    local ev = label % 0x10000 * 0x10000 + pinfo.src_port
    subtree:add(f.type, type):set_generated()
    subtree:add(f.plane, math.floor(pinfo.src_port / EV_LOW)):set_generated()
    subtree:add(f.ev, ev):set_generated()
    if is_whole then
        local good = has_icrc(tvb, pinfo, sources[#sources], destinations[#destinations])
        subtree:add(f.icrc, tvb(tvb:len() - ICRC, ICRC), good and "good" or "wrong")
        if not good then subtree:add_proto_expert_info(wrong_icrc) end
    end
    subtree:append_text(", " .. type)
    pinfo.cols.protocol = "MRC"
    local text = string.format("%s %s EV=0x%08x", type, info, ev)
    pinfo.cols.info = #names == 0 and text or text .. " [" .. table.concat(names, ", ") .. "]"
    return tvb:len()
end

local ports = DissectorTable.get("udp.port")
local infiniband = ports:get_dissector(4791)

local shared = Proto("strandway_4791", "Strandway: MRC and RoCEv2")

-- MRC as published: the number of bytes read, or 0 if it is another packet.
local function published(tvb, pinfo, tree)
    local sources, destinations, labels = { ipv6_source() }, { ipv6_destination() }, { ipv6_flow() }
    if #sources > 1 and tvb:len() >= 16 and OCP_TYPES[tvb(0, 1):uint()] and tvb(1, 1):bitfield(4, 4) <= 1 then
        return ocp(tvb, pinfo, tree, sources, destinations, labels[#labels].value)
    end
    return 0
end

-- MRC's source port is the lower part of the EV. Wireshark asks the dissector of the lower port first, and 49 is that of TACACS:
-- with `udp.try_heuristic_first` it asks this function before.
shared:register_heuristic("udp", function(tvb, pinfo, tree)
    return pinfo.dst_port == 4791 and published(tvb, pinfo, tree) > 0
end)

function shared.dissector(tvb, pinfo, tree)
    local read = published(tvb, pinfo, tree)
    if read > 0 then return read end
    local around = outer(pinfo)
    if around and common(tvb) then
        return dissect(tvb, pinfo, tree, "common", around)
    end
    if around and tvb:len() > 1 and tvb(1, 1):bitfield(4, 4) == 1 then
        return dissect(tvb, pinfo, tree, "mrc", around, mrc)
    end
    if infiniband then infiniband:call(tvb, pinfo, tree) end
    if around then dissect(tvb, pinfo, tree, "rocev2", around, rocev2) end
    return tvb:len()
end

-- Whatever else uses these ports is left alone. 4793 is Ultra Ethernet's.
local function own(format, title)
    local proto = Proto("strandway_" .. format, "Strandway: " .. title)
    function proto.dissector(tvb, pinfo, tree)
        local around = outer(pinfo)
        if not around then return 0 end
        return dissect(tvb, pinfo, tree, format, around, own_layout)
    end
    return proto
end

ports:add(4791, shared)
ports:add(49408, own("uec", "UEC"))
ports:add(49407, own("strack", "STrack"))
