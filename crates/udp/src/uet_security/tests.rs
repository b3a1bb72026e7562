//! The reference's vectors, and datagrams that are sealed and opened.

use super::*;
use aes::Aes128;
use cmac::{Cmac, Mac as _};
use proptest::prelude::*;
use strandway_wire::uet;

fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex.bytes().filter_map(|c| char::from(c).to_digit(16).map(|d| d as u8)).collect();
    digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}

fn array<const N: usize>(hex: &str) -> [u8; N] {
    bytes(hex).try_into().expect("its length")
}

const SDK: &str = "34448a064292601b11a0978f56a2d34cf3fc35ede1a6bc04f8db3e5243a2b0ca";
const LONG: &str = "2001 0cb0 0000 0000 0fc0 0000 0000 0abc";

#[test]
fn keys_are_derived_as_the_reference_derives_them() {
    let short = Owner::Short([192, 168, 42, 1]);
    let long = Owner::Long(array(LONG));
    let cluster = Context { owner: short, epoch: 0x1dc0, rekey: 0x74e5 };
    let server = Context { rekey: 0, ..cluster };
    // The masks were calculated; the reference has no vector for them.
    for (label, context, key, mask) in [
        (
            b"U1",
            cluster,
            "151b4ddb30112971ddeff3213000ee74d8f18aac2135601f1e5215e505fed449",
            "a7c6992c26b0bd5dd5c20e0c",
        ),
        (
            b"U1",
            Context { owner: long, ..cluster },
            "55d1ee8647bd53fad0e5325795af18e7559b7d42a895edf70f9c170341e8f767",
            "9c96a5752fb5669ccd5ded3f",
        ),
        (b"U2", server, "245e67ab286218530edd53c26ea9ec33c96b35192d0a0eb54d08be281c5d304b", "02d5ee33684201990e1629e0"),
        (
            b"U2",
            Context { owner: long, ..server },
            "b59002ad3e6a9ae5864878730070f8916e43e5011acaa4be3504256185f24d97",
            "209a3d29581028fb0da2749e",
        ),
    ] {
        let derived = derive(&array(SDK), label, &context).expect("a derived key");
        assert_eq!((derived[..32].to_vec(), derived[32..].to_vec()), (bytes(key), bytes(mask)));
    }
    assert_eq!(derive(&array(SDK), b"U1", &Context { owner: Owner::Domain, ..cluster }), None);
}

#[test]
fn the_reference_finds_the_key_of_a_datagram_by_mode_address_and_counter() {
    let header = SecurityHeader { domain: 7, epoch: 0x1dc0, counter: 0x74e5_0001, ..SecurityHeader::default() };
    let addresses = Addresses::V4([192, 168, 42, 1], [192, 168, 42, 2]);
    let rekey = Rekey { mask: 0xffff_0000, shift: 16 };
    let domain = |mode| Domain { number: 7, key: array(SDK), mode, rekey };
    let of = |mode, header| domain(mode).context(&addresses, &header).map(|c| (c.owner, c.epoch, c.rekey));
    let (first, second) = (Owner::Short([192, 168, 42, 1]), Owner::Short([192, 168, 42, 2]));
    assert!(of(Mode::Cluster, header) == Ok((first, 0x1dc0, 0x74e5)));
    assert!(of(Mode::Client, header) == Ok((first, 0x1dc0, 0)));
    assert!(of(Mode::Server, header) == Ok((second, 0x1dc0, 0)));
    assert!(of(Mode::Direct, header) == Ok((Owner::Domain, 0, 0)));
    let named = SecurityHeader { source: Some(9), ..header };
    assert!(of(Mode::Cluster, named) == Ok((Owner::Short([0, 0, 0, 9]), 0x1dc0, 0x74e5)));
    assert!(of(Mode::Server, named) == Err(Refusal::Identifier));
}

#[test]
fn a_nonce_is_source_and_time_stamp_under_the_mask() {
    let header = SecurityHeader { domain: 0x0a_0b0c, epoch: 0x0102, counter: 0x0304_0506_0708, ..Default::default() };
    let v4 = Addresses::V4([192, 168, 42, 1], [0; 4]);
    let v6 = Addresses::V6([1; 16], [2; 16]);
    assert_eq!(nonce(&[0; 12], &v4, &header), array::<12>("c0a82a01 0102030405060708"));
    assert_eq!(nonce(&[0xff; 12], &v4, &header), array::<12>("3f57d5fe fefdfcfbfaf9f8f7"));
    assert_eq!(nonce(&[0; 12], &v6, &header), array::<12>("000a0b0c 0102030405060708"));
    let named = SecurityHeader { source: Some(0x1122_3344), ..header };
    assert_eq!(nonce(&[0; 12], &v6, &named), array::<12>("11223344 0102030405060708"));
}

#[test]
fn aes_256_gcm_gives_the_published_results() {
    let plain = bytes(concat!(
        "d9313225f88406e5a55909c5aff5269a86a7a9531534f7da2e4c303d8a318a72",
        "1c3c0c95956809532fcf0e2449a6b525b16aedf5aa0de657ba637b391aafd255"
    ));
    let sealed = bytes(concat!(
        "522dc1f099567d07f47f37a32a84427d643a8cdcbfe5c0c97598a2bd2555d1aa",
        "8cb08e48590dbb3da7b08b1056828838c5f61e6393ba7a0abcc9f662898015ad"
    ));
    let zero = "00".repeat(32);
    let one = "feffe9928665731c6d6a8f9467308308".repeat(2);
    let iv = "cafebabefacedbaddecaf888";
    let signed = "feedfacedeadbeeffeedfacedeadbeefabaddad2";
    let block = bytes("cea7403d4d606b6e074ec5d3baf39d18");
    for (key, iv, signed, plain, sealed, tag) in [
        (&zero, "000000000000000000000000", "", &[][..], &[][..], "530f8afbc74536b9a963b4f1c4cb738b"),
        (&zero, "000000000000000000000000", "", &[0; 16], &block, "d0d1c8a799996bf0265b98b5d48ab919"),
        (&one, iv, "", &plain, &sealed, "b094dac5d93471bdec1a502270e3cc6c"),
        (&one, iv, signed, &plain[..60], &sealed[..60], "76fc6ece0f4e1768cddf8853bb2d551b"),
    ] {
        let key = Key::wide(&array(key));
        let (iv, signed) = (array(iv), bytes(signed));
        let mut body = plain.to_vec();
        assert_eq!(key.seal(&iv, &signed, &mut body).to_vec(), bytes(tag));
        assert_eq!(body, sealed);
        key.open(&iv, &signed, &mut body, &bytes(tag)).expect("it is genuine");
        assert_eq!(body, plain);
    }
}

#[test]
fn cmac_and_its_counter_mode_give_the_published_results() {
    for (key, mac) in [
        ("95d8afb8a4b7245ce79f9f9c5ddd40de61b35905dcb638f2b875404a985b3f7a", "68adfc9b59de87387d3ea646efd758fc"),
        ("f0a3e4c237d86718d84c43185e70f9cef0dc92b378e3e0db046b06716cfb3b61", "38ba46602f3411a58b2e83c6c6200220"),
    ] {
        assert_eq!(cmac(&array(key), &[]).to_vec(), bytes(mac));
        assert_eq!(cmac(&array(key), &[&[], &[]]).to_vec(), bytes(mac), "parts are joined");
    }
    // NIST's vector of the counter mode has AES-128.
    let fixed = bytes(concat!(
        "c16e6e02c5a3dcc8d78b9ac1306877761310455b4e41469951d9e6c2245a064b",
        "33fd8c3b01203a7824485bf0a64060c4648b707d2607935699316ea5"
    ));
    let mut mac = Cmac::<Aes128>::new_from_slice(&bytes("dff1e50ac0b69dc40f1051d46c2b069c")).expect("16 bytes");
    mac.update(&[1]);
    mac.update(&fixed);
    assert_eq!(mac.finalize().into_bytes().to_vec(), bytes("8be8f0869b3c0ba97b71863d1b9f7813"));
}

fn domain(mode: Mode) -> Domain {
    Domain { number: 0x12_3456, key: array(SDK), mode, rekey: Rekey { mask: 0xff00, shift: 8 } }
}

/// A first packet of a context.
fn plain() -> Vec<u8> {
    bytes(
        "118c ffff 12345678 0001 0000 01 0b 0001 00 000000 0000 0000 0000000000001000 00000000 0000000000000042
        0000000000000000 00000008 4142434445464748",
    )
}

#[test]
fn a_sealed_datagram_opens_again_and_no_byte_of_it_may_change() {
    let v4 = Addresses::V4([192, 168, 42, 1], [192, 168, 42, 2]);
    let v6 = Addresses::V6([1; 16], [2; 16]);
    for (mode, identifier, addresses, other_addresses) in [
        (Mode::Direct, Some(5), v4, Addresses::V4([192, 168, 42, 1], [192, 168, 42, 3])),
        (Mode::Cluster, None, v4, Addresses::V4([192, 168, 42, 3], [192, 168, 42, 2])),
        (Mode::Cluster, Some(5), v6, Addresses::V6([1; 16], [3; 16])),
        (Mode::Client, None, v6, Addresses::V6([3; 16], [2; 16])),
        (Mode::Server, None, v6, Addresses::V6([1; 16], [3; 16])),
    ] {
        let mut sealer = Sealer::new(domain(mode), identifier, true, 3).expect("a processor with AES");
        let mut opener = Opener::new(domain(mode), true).expect("a processor with AES");
        let mut seen = Vec::new();
        // A new key after 256 packets.
        for counter in 0..300 {
            let mut datagram = Vec::new();
            sealer.seal(&addresses, 0x4242, &plain(), &mut datagram).expect("it fits");
            let genuine = datagram.clone();
            let (entropy, header, body) = opener.open(&addresses, &mut datagram).expect("it is genuine");
            assert_eq!((entropy, header.counter, header.epoch), (0x4242, counter, 3));
            assert_eq!(body, plain());
            assert!(uet::decode(body).is_ok());
            seen.push(genuine);
        }
        for datagram in [&seen[0], &seen[299]] {
            for at in 0..datagram.len() {
                let mut changed = datagram.clone();
                changed[at] ^= 1;
                assert!(opener.open(&addresses, &mut changed).is_err(), "{mode:?}: byte {at}");
            }
            for end in 0..datagram.len() {
                assert!(opener.open(&addresses, &mut datagram[..end].to_vec()).is_err(), "{mode:?}: {end} bytes");
            }
            let moved = opener.open(&other_addresses, &mut datagram.clone()).map(|_| ());
            assert_eq!(moved, Err(Refusal::Forged), "{mode:?}: other addresses");
        }
        seen.sort();
        seen.dedup();
        assert_eq!(seen.len(), 300, "no two datagrams are alike");
    }
}

#[test]
fn counters_end_and_domains_are_told_apart() {
    let addresses = Addresses::V4([1; 4], [2; 4]);
    let mut sealer = Sealer::new(domain(Mode::Cluster), None, false, 0).expect("a processor with AES");
    sealer.header.counter = COUNTERS - 1;
    let mut datagram = Vec::new();
    sealer.seal(&addresses, 1, &plain(), &mut datagram).expect("the last one");
    let before = datagram.clone();
    assert_eq!(sealer.seal(&addresses, 1, &plain(), &mut datagram), Err(Refusal::Exhausted));
    assert_eq!(datagram, before);
    for (number, association) in [(0x12_3457, false), (0x12_3456, true)] {
        let other = Domain { number, ..domain(Mode::Cluster) };
        let mut opener = Opener::new(other, association).expect("a processor with AES");
        assert_eq!(opener.open(&addresses, &mut datagram).map(|_| ()), Err(Refusal::OtherDomain));
    }
    let mut wide = Sealer::new(Domain { number: 1 << 24, ..domain(Mode::Direct) }, None, false, 0).expect("AES");
    assert_eq!(wide.seal(&addresses, 1, &[], &mut datagram), Err(Refusal::Wire(WireError::Unencodable)));
    let mut server = Sealer::new(domain(Mode::Server), Some(1), false, 0).expect("a processor with AES");
    assert_eq!(server.seal(&addresses, 1, &[], &mut datagram), Err(Refusal::Identifier));
    assert_eq!(datagram, before);
}

proptest! {
    #[test]
    fn no_bytes_make_the_opener_panic(mut bytes in prop::collection::vec(any::<u8>(), 0..80), known: bool) {
        if known && bytes.len() > 8 {
            bytes[2..8].copy_from_slice(&[0, 0, 8, 0x12, 0x34, 0x56]);
        }
        let mut opener = Opener::new(domain(Mode::Cluster), false).expect("a processor with AES");
        let addresses = Addresses::V6([1; 16], [2; 16]);
        prop_assert!(opener.open(&addresses, &mut bytes).is_err());
    }
}
