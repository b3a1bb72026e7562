//! The worked examples of the sources, byte by byte; datagrams as SUET sends them.

use super::*;

const START: u32 = 0x1234_5678;

/// Example A: the first packet of a context, a write of eight bytes.
fn write_request() -> Datagram<'static> {
    let request = Request {
        mode: Mode::Unordered,
        retransmitted: false,
        ack_request: true,
        clear_offset: -1,
        psn: START,
        source: 1,
        target: Context::Opening { info: 0, psn_offset: 0 },
        credit: None,
    };
    let standard = Standard {
        common: Common { opcode: Opcode::WRITE, relative: true, ..Common::default() },
        message: 1,
        has_header_data: false,
        last: true,
        offset: 0x1000,
        initiator: 0,
        key: 0x42,
        place: Place::First { header_data: 0 },
        length: 8,
        extension: Extension::None,
    };
    Datagram { pds: Pds::Request(request), ses: Ses::Standard(standard), payload: b"ABCDEFGH" }
}

const WRITE_REQUEST: &str = "118c ffff 12345678 0001 0000
    01 0b 0001 00 000000 0000 0000 0000000000001000 00000000 0000000000000042 0000000000000000 00000008
    4142434445464748";

fn ack(offset: i16, cumulative: u32) -> Ack {
    Ack {
        marked: false,
        retransmitted: false,
        cause: Cause::Packet(offset),
        wish: Wish::None,
        cumulative,
        source: 2,
        target: 1,
        congestion: None,
        expected: None,
    }
}

fn default_response(message: u16, length: u32) -> Ses {
    let answer = Answer { list: 0, opcode: ResponseOpcode::DEFAULT, code: ReturnCode::OK, job: 0 };
    Ses::Response(Response { answer, message, generation: 0, length })
}

const fn control(kind: ControlKind, psn: u32, payload: u32) -> Control {
    Control {
        kind,
        mode: Mode::Ordered,
        retransmitted: false,
        ack_request: false,
        opaque: 0,
        psn,
        source: 1,
        target: Context::Known(2),
        payload,
    }
}

const fn nack(code: NackCode, psn: u32, source: u16) -> Datagram<'static> {
    let about = Refused::Packet { psn, source, target: 1 };
    let nack = Nack { marked: false, retransmitted: false, code, vendor: 0, about, payload: 0, extended: None };
    Datagram { pds: Pds::Nack(nack), ses: Ses::None, payload: &[] }
}

const fn bare(pds: Pds) -> Datagram<'static> {
    Datagram { pds, ses: Ses::None, payload: &[] }
}

#[test]
fn a_first_request_has_the_bytes_of_example_a() {
    let datagram = write_request();
    check(WRITE_REQUEST, &datagram);
    let Pds::Request(request) = datagram.pds else { panic!("a request") };
    assert_eq!((request.start_psn(), request.clear_psn()), (Some(START), START - 1));
    // SUET asks for no acknowledgement; ordered, and sent again.
    for (mode, retransmitted, first) in [
        (Mode::Unordered, false, "1184"),
        (Mode::Ordered, false, "1984"),
        (Mode::Unordered, true, "1194"),
        (Mode::Ordered, true, "1994"),
    ] {
        let request = Request { mode, retransmitted, ack_request: false, ..request };
        let expected = WRITE_REQUEST.replacen("118c", first, 1);
        check(&expected, &Datagram { pds: Pds::Request(request), ..datagram });
    }
}

#[test]
fn over_native_ip_example_a_has_an_entropy_header_and_a_crc() {
    let mut native = entropy_header(0x4242).to_vec();
    encode(&write_request(), &mut native).expect("every number fits");
    let addresses = Addresses::V4([192, 168, 1, 1], [192, 168, 1, 2]);
    let sum = crc(&addresses, &native);
    assert_eq!(sum, [0x10, 0xb6, 0xda, 0x1b]);
    native.extend(sum);
    let covered = without_crc(&addresses, &native).expect("the CRC is right");
    let (entropy, rest) = read_entropy(covered).expect("an entropy header");
    assert_eq!((entropy, decode(rest)), (0x4242, Ok(write_request())));
    // A CRC that nobody took away is no part of the payload.
    assert_eq!(decode(&native[ENTROPY..]), Err(WireError::Length));
}

#[test]
fn its_acknowledgement_has_the_bytes_of_example_b() {
    let datagram = Datagram { pds: Pds::Ack(ack(0, START)), ses: default_response(1, 8), payload: &[] };
    check("3a00 0000 12345678 0002 0001  00 01 0001 00 000000 00000008", &datagram);
    assert_eq!(ack(0, START).acked_psn(), Some(START));
}

#[test]
fn an_acknowledgement_of_single_packets_has_the_bytes_of_example_c() {
    let nscc = Nscc { service_time: 8, restore: false, penalty: 0, received: 81, out_of_order: 3 };
    let congestion = Congestion { flags: 0, range: 1, base_offset: -1, bitmap: 0x58, state: State::Nscc(nscc) };
    let ack = Ack { marked: true, congestion: Some(congestion), ..ack(5, START + 1) };
    let datagram = Datagram { pds: Pds::Ack(ack), ses: default_response(2, 32_320), payload: &[] };
    let hex = "4220 0005 12345679 0002 0001  00 01 ffff 0000000000000058 0008 00 000051 0003
        00 01 0002 00 000000 00007e40";
    check(hex, &datagram);
    assert_eq!((ack.acked_psn(), ack.base_psn()), (Some(START + 6), Some(START)));
    // SUET's, without a state.
    let congestion = Congestion { bitmap: 0x5b, state: State::Nscc(Nscc::default()), ..congestion };
    let ack = Ack { congestion: Some(congestion), ..ack };
    let hex = hex.replace("58 0008 00 000051 0003", "5b 0000 00 000000 0000");
    check(&hex, &Datagram { pds: Pds::Ack(ack), ..datagram });
}

#[test]
fn control_packets_and_nacks_have_the_bytes_of_the_sources() {
    let clear = control(ControlKind::CLEAR, 0, START);
    check("5920 0000 00000000 0001 0002 12345678", &bare(Pds::Control(clear)));
    let close = control(ControlKind::CLOSE, START + 1, 0);
    check("5a20 0000 12345679 0001 0002 00000000", &bare(Pds::Control(close)));
    let again = Control { retransmitted: true, ..close };
    check("5a30 0000 12345679 0001 0002 00000000", &bare(Pds::Control(again)));
    // The reference asks for an acknowledgement, and does not say the mode.
    let asked = Control { mode: Mode::Unordered, ack_request: true, ..close };
    check("5a08 0000 12345679 0001 0002 00000000", &bare(Pds::Control(asked)));
    check("3800 0000 12345679 0002 0001", &bare(Pds::Ack(ack(0, START + 1))));
    check("5000 0100 1234567a 0002 0001 00000000", &nack(NackCode::TRIMMED, START + 2, 2));
    check("5000 0e00 12345678 0000 0001 00000000", &nack(NackCode::UNKNOWN_CONTEXT, START, 0));
}

#[test]
fn an_atomic_operation_and_a_continuation_have_the_bytes_of_suet() {
    let Datagram { pds: Pds::Request(request), ses: Ses::Standard(standard), .. } = write_request() else {
        panic!("a request")
    };
    let pds = Pds::Request(Request { mode: Mode::Ordered, ack_request: false, target: Context::Known(2), ..request });
    let atomic = Atomic { opcode: AtomicOpcode::MIN, datatype: Datatype::UINT64, semantics: 0 };
    let common = Common { opcode: Opcode::ATOMIC, ..standard.common };
    let ses = Ses::Standard(Standard { common, extension: Extension::Atomic(atomic), ..standard });
    let hex = "1980 ffff 12345678 0001 0002
        03 0b 0001 00 000000 0000 0000 0000000000001000 00000000 0000000000000042 0000000000000000 00000008
        00070000 4142434445464748";
    check(hex, &Datagram { pds, ses, payload: b"ABCDEFGH" });
    let place = Place::Later { offset: 0x588 };
    let ses = Ses::Standard(Standard { place, last: false, length: 4_096, ..standard });
    let hex = "1980 ffff 12345678 0001 0002
        01 08 0001 00 000000 0000 0000 0000000000001000 00000000 0000000000000042 00000008 00000588 00001000
        4142434445464748";
    check(hex, &Datagram { pds, ses, payload: b"ABCDEFGH" });
}

#[test]
fn a_trimmed_request_gives_its_sequence_number() {
    let whole = bytes(WRITE_REQUEST);
    let Pds::Request(request) = write_request().pds else { panic!("a request") };
    for end in 0..whole.len() {
        let expected = if end < 12 { Err(WireError::Short) } else { Ok(request) };
        assert_eq!(decode_trimmed(&whole[..end]), expected);
    }
    assert_eq!(decode_trimmed(&bytes("3800 0000 12345679 0002 0001")), Err(WireError::Unknown));
}

#[test]
fn headers_that_no_source_gives_are_refused_by_name() {
    let whole = bytes(WRITE_REQUEST);
    let changed = |at: usize, to: u8| {
        let mut bytes = whole.clone();
        bytes[at] = to;
        decode(&bytes).map(|datagram| datagram.pds)
    };
    assert_eq!(changed(0, 0x09), Err(WireError::Unknown), "a security header");
    assert_eq!(changed(0, 0x79), Err(WireError::Unknown), "type 15");
    assert_eq!(changed(0, 0x13), Err(WireError::Unknown), "next header 7");
    assert_eq!(changed(1, 0xcc), Err(WireError::Inconsistent), "a reserved flag");
    assert_eq!(changed(12, 0x41), Err(WireError::Inconsistent), "a reserved bit before the operation");
    assert_eq!(changed(12, 0x11), Err(WireError::Unknown), "a synchronised atomic operation");
    assert_eq!(changed(12, 0x3f), Err(WireError::Unknown), "an operation that no source names");
    assert_eq!(changed(13, 0x4b), Err(WireError::Unknown), "version 1");
    assert_eq!(changed(13, 0x0a), Err(WireError::Length), "a continuation of no bytes");
    assert_eq!(changed(20, 0x10), Err(WireError::Inconsistent), "a reserved bit before the process");
    assert_eq!(changed(55, 0x09), Err(WireError::Length), "a message that is longer than its only packet");
    for (hex, expected) in [
        ("3801 0000 12345679 0002 0001", WireError::Inconsistent),
        ("3806 0000 12345679 0002 0001", WireError::Inconsistent),
        ("5080 0100 1234567a 0002 0001 00000000", WireError::Inconsistent),
        ("5008 0100 1234567a 0002 0001 00000000", WireError::Inconsistent),
        ("3000 0001", WireError::Inconsistent),
        ("2020 0000 00000001", WireError::Inconsistent),
        ("0000 0000", WireError::Unknown),
    ] {
        assert_eq!(decode(&bytes(hex)), Err(expected), "{hex}");
    }
}

#[test]
fn headers_that_do_not_fit_are_not_written() {
    let datagram = write_request();
    let Datagram { pds: Pds::Request(request), ses: Ses::Standard(standard), .. } = datagram else {
        panic!("a request")
    };
    let with = |change: &dyn Fn(&mut Standard)| {
        let mut standard = standard;
        change(&mut standard);
        Datagram { ses: Ses::Standard(standard), ..datagram }
    };
    let opening = Context::Opening { info: 0, psn_offset: 4_096 };
    let cases = [
        Datagram { payload: b"ABC", ..datagram },
        Datagram { ses: Ses::None, ..datagram },
        Datagram { ses: datagram.ses, ..nack(NackCode::TRIMMED, START, 2) },
        Datagram { pds: Pds::Request(Request { target: opening, ..request }), ..datagram },
        with(&|standard| standard.common.job = 1 << 24),
        with(&|standard| standard.common.process = 1 << 12),
        with(&|standard| standard.common.opcode = Opcode(64)),
        with(&|standard| standard.common.opcode = Opcode::ATOMIC),
        with(&|standard| standard.extension = Extension::Atomic(Atomic::default())),
        with(&|standard| standard.place = Place::Later { offset: 1 }),
    ];
    for case in cases {
        let mut out = vec![1, 2];
        assert_eq!(encode(&case, &mut out), Err(WireError::Unencodable), "{case:?}");
        assert_eq!(out, [1, 2]);
    }
}

#[test]
fn codes_have_texts_and_unknown_ones_have_none() {
    assert_eq!(NackCode::TRIMMED.text(), Some("trimmed by a switch"));
    assert_eq!((NackCode(0x0c).text(), Opcode(0x3f).text(), ControlKind(10).text()), (None, None, None));
    assert_eq!(ReturnCode(0x24).text(), Some("dropped"));
}
