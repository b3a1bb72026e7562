//! The codecs that are measured, behind one trait: ours and those of other projects.

use strandway_erasure::{Code, Decoder, Encoder, Kernel, Pieces};

/// The work of a codec on a group.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Operation {
    /// Make the parity.
    Encode,
    /// Rebuild the last pieces of data, in place; the pattern is the same each time, so that inverses may be cached.
    Rebuild(usize),
}

/// A codec with its numbers of pieces.
pub(crate) trait Codec {
    /// Its name in the table.
    fn name(&self) -> String;

    /// Executes the operation on a group: data pieces first, then parity.
    fn run(&mut self, operation: Operation, pieces: &mut [&mut [u8]]);
}

/// Every codec that is compiled in.
pub(crate) fn all(k: usize, m: usize) -> Vec<Box<dyn Codec>> {
    let mut all: Vec<Box<dyn Codec>> = Vec::new();
    for kernel in Kernel::ALL.into_iter().filter(|k| k.available()) {
        all.push(Box::new(Ours::new(Code::mds(k, m).expect("a code"), kernel, k)));
    }
    for at_once in [1, 2, 4, 8] {
        all.push(Box::new(Ours::new(Code::mds(k, m).expect("a code"), Kernel::best(), at_once)));
    }
    for kernel in Kernel::ALL.into_iter().filter(|k| k.available()) {
        all.push(Box::new(Ours::new(Code::xor(k, m).expect("a code"), kernel, k)));
    }
    #[cfg(feature = "isal")]
    all.push(Box::new(isal::Isal::new(k, m)));
    all.push(Box::new(Erasure { k, code: reed_solomon_erasure::galois_8::ReedSolomon::new(k, m).expect("a code") }));
    all.push(Box::new(Fec { k, code: fec_rs::ReedSolomon::new(k, m).expect("a code"), shards: Vec::new() }));
    all.push(Box::new(Simd { k, m }));
    all
}

struct Ours {
    encoder: Encoder,
    decoder: Decoder,
    /// Pieces of data that are added to the parity at once. If that is not all of them, each rebuild has another
    /// pattern as well.
    at_once: usize,
    turn: usize,
}

impl Ours {
    fn new(code: Code, kernel: Kernel, at_once: usize) -> Ours {
        let encoder = Encoder::with_kernel(code, kernel).expect("available");
        Ours { encoder, decoder: Decoder::with_kernel(code, kernel).expect("available"), at_once, turn: 0 }
    }
}

impl Codec for Ours {
    fn name(&self) -> String {
        let code = self.encoder.code();
        let steps = match self.at_once {
            all if all == code.data() => String::new(),
            some => format!(", {some} at once, new patterns"),
        };
        format!("{code} {}{steps}", self.encoder.kernel())
    }

    fn run(&mut self, operation: Operation, pieces: &mut [&mut [u8]]) {
        let k = self.encoder.code().data();
        let (data, parity) = pieces.split_at_mut(k);
        match operation {
            Operation::Encode => {
                let data: Vec<&[u8]> = data.iter().map(|d| &**d).collect();
                if self.at_once < k {
                    parity.iter_mut().for_each(|p| p.fill(0));
                    for (i, pieces) in data.chunks(self.at_once).enumerate() {
                        self.encoder.add(i * self.at_once, pieces, parity).expect("sizes fit");
                    }
                } else {
                    self.encoder.encode(&data, parity).expect("sizes fit");
                }
            }
            Operation::Rebuild(lost) => {
                self.turn += usize::from(self.at_once < k);
                let missing = (0..lost).map(|i| (self.turn + i) % k);
                let present = missing.fold(Pieces::all(pieces.len()), Pieces::without);
                let (data, parity) = pieces.split_at_mut(k);
                let parity: Vec<&[u8]> = parity.iter().map(|p| &**p).collect();
                self.decoder.rebuild(data, &parity, &present).expect("decodable");
            }
        }
    }
}

struct Erasure {
    k: usize,
    code: reed_solomon_erasure::galois_8::ReedSolomon,
}

impl Codec for Erasure {
    fn name(&self) -> String {
        "reed-solomon-erasure 6.0 (simd-accel)".into()
    }

    fn run(&mut self, operation: Operation, pieces: &mut [&mut [u8]]) {
        match operation {
            Operation::Encode => {
                let (data, parity) = pieces.split_at_mut(self.k);
                self.code.encode_sep(data, parity).expect("sizes fit");
            }
            Operation::Rebuild(lost) => {
                let mut shards: Vec<(&mut [u8], bool)> =
                    pieces.iter_mut().enumerate().map(|(i, p)| (&mut **p, i >= lost)).collect();
                self.code.reconstruct_data(&mut shards).expect("decodable");
            }
        }
    }
}

struct Fec {
    k: usize,
    code: fec_rs::ReedSolomon,
    /// The library rebuilds only vectors of its own, so these are the same each time, in cache.
    shards: Vec<Option<Vec<u8>>>,
}

impl Codec for Fec {
    fn name(&self) -> String {
        "fec-rs 0.1".into()
    }

    fn run(&mut self, operation: Operation, pieces: &mut [&mut [u8]]) {
        match operation {
            Operation::Encode => {
                let (data, parity) = pieces.split_at_mut(self.k);
                self.code.encode_sep(data, parity).expect("sizes fit");
            }
            Operation::Rebuild(lost) => {
                if self.shards.first().and_then(|s| s.as_ref()).is_none_or(|s| s.len() != pieces[0].len()) {
                    self.shards = pieces.iter().map(|p| Some(p.to_vec())).collect();
                }
                self.shards[..lost].fill(None);
                self.code.reconstruct_data(&mut self.shards).expect("decodable");
            }
        }
    }
}

struct Simd {
    k: usize,
    m: usize,
}

impl Codec for Simd {
    fn name(&self) -> String {
        "reed-solomon-simd 3.1".into()
    }

    fn run(&mut self, operation: Operation, pieces: &mut [&mut [u8]]) {
        let (k, m) = (self.k, self.m);
        match operation {
            Operation::Encode => {
                let parity = reed_solomon_simd::encode(k, m, &pieces[..k]).expect("sizes fit");
                pieces[k..].iter_mut().zip(parity).for_each(|(p, made)| p.copy_from_slice(&made));
            }
            Operation::Rebuild(lost) => {
                let data = (lost..k).map(|i| (i, &*pieces[i]));
                let parity = (0..lost).map(|i| (i, &*pieces[k + i]));
                for (i, made) in reed_solomon_simd::decode(k, m, data, parity).expect("decodable") {
                    pieces[i].copy_from_slice(&made);
                }
            }
        }
    }
}

#[cfg(feature = "isal")]
mod isal {
    //! Intel's library in C, as the reference.

    use super::{Codec, Operation};
    use std::ffi::{c_int, c_uchar};

    unsafe extern "C" {
        fn gf_gen_cauchy1_matrix(matrix: *mut c_uchar, rows: c_int, k: c_int);
        fn ec_init_tables(k: c_int, rows: c_int, matrix: *mut c_uchar, tables: *mut c_uchar);
        fn ec_encode_data(
            length: c_int,
            k: c_int,
            rows: c_int,
            tables: *mut c_uchar,
            data: *mut *mut c_uchar,
            parity: *mut *mut c_uchar,
        );
    }

    pub(super) struct Isal {
        k: usize,
        m: usize,
        tables: Vec<u8>,
    }

    impl Isal {
        pub(super) fn new(k: usize, m: usize) -> Isal {
            let (mut matrix, mut tables) = (vec![0; (k + m) * k], vec![0; 32 * k * m]);
            // SAFETY: the matrix has k + m rows of k bytes, and the tables 32 bytes for each constant of the m rows of
            // parity.
            unsafe {
                gf_gen_cauchy1_matrix(matrix.as_mut_ptr(), (k + m) as c_int, k as c_int);
                ec_init_tables(k as c_int, m as c_int, matrix[k * k..].as_mut_ptr(), tables.as_mut_ptr());
            }
            Isal { k, m, tables }
        }
    }

    impl Codec for Isal {
        fn name(&self) -> String {
            "ISA-L (Debian's)".into()
        }

        /// Rebuilding is the same call with a row per lost piece. The constants are those of another matrix, which does
        /// not change the time: this is the rate with the inverse cached.
        fn run(&mut self, operation: Operation, pieces: &mut [&mut [u8]]) {
            let rows = match operation {
                Operation::Encode => self.m,
                Operation::Rebuild(lost) => lost,
            };
            let length = pieces[0].len() as c_int;
            let mut pointers: Vec<*mut c_uchar> = pieces.iter_mut().map(|p| p.as_mut_ptr()).collect();
            let (data, parity) = pointers.split_at_mut(self.k);
            // SAFETY: k + m distinct pieces of `length` bytes, and tables for m rows of k constants.
            unsafe {
                ec_encode_data(
                    length,
                    self.k as c_int,
                    rows as c_int,
                    self.tables.as_mut_ptr(),
                    data.as_mut_ptr(),
                    parity.as_mut_ptr(),
                );
            }
        }
    }
}
