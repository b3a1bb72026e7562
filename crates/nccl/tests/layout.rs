//! Structures are laid out as the interface says: offsets counted by hand from its documentation, for 64-bit systems.

use nccl_net_strandway::*;
use std::mem::offset_of;

#[test]
fn structures_have_the_offsets_of_the_interface() {
    assert_eq!(
        (offset_of!(PropertiesV8, ptr_support), offset_of!(PropertiesV8, speed), offset_of!(PropertiesV8, latency)),
        (24, 32, 40)
    );
    assert_eq!((offset_of!(PropertiesV8, max_recvs), size_of::<PropertiesV8>()), (48, 64));
    type Nine = PropertiesV9<4>;
    assert_eq!((offset_of!(Nine, force_flush), offset_of!(Nine, speed), offset_of!(Nine, max_comms)), (32, 36, 48));
    assert_eq!((offset_of!(Nine, devices), offset_of!(Nine, max_p2p_bytes), size_of::<Nine>()), (64, 88, 104));
    assert_eq!((offset_of!(PropertiesV11, max_multi_request_size), size_of::<PropertiesV11>()), (104, 112));
    type Twelve = PropertiesV9<8>;
    assert_eq!((offset_of!(Twelve, max_p2p_bytes), size_of::<Twelve>()), (104, 120));
    assert_eq!(
        (offset_of!(PropertiesV12, rail), offset_of!(PropertiesV12, plane), size_of::<PropertiesV12>()),
        (124, 126, 128)
    );
    let tables =
        [size_of::<NetV8>(), size_of::<NetV9>(), size_of::<NetV10>(), size_of::<NetV11>(), size_of::<NetV12>()];
    assert_eq!(tables.map(|bytes| bytes / 8), [19, 20, 20, 22, 22], "pointers in a table");
    assert_eq!((offset_of!(NetV12, test) / 8, offset_of!(NetV12, finalize) / 8), (13, 20));
}
