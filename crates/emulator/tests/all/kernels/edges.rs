//! Arguments that cannot be: an error with the op's name, and no panic.

use ferrane_device::ErrorKind;

use super::Case;
use crate::harness::BOTH;

/// Cases that are computed only when the function runs, so that no rule sees the values before.
const REFUSED: &str = "\
range_1d ios15 start=int32:0 end=int32:5 step=int32:0
range_1d ios15 start=fp32:0 end=fp32:5 step=fp32:0
range_1d ios15 start=fp32:0 end=fp32:nan step=fp32:1
range_1d ios15 start=int32:0 end=int32:2147483647 step=int32:1
fill ios15 shape=int32[2]:-1,2 value=fp32:1
fill ios15 shape=int32[3]:65536,65536,65536 value=fp32:1
one_hot ios15 indices=int32[1]:0 one_hot_vector_size=int32:2147483647
scatter ios15 data=fp32[2]:0,0 indices=int32[1]:2 updates=fp32[1]:1
scatter ios15 data=fp32[2]:0,0 indices=int32[1]:-3 updates=fp32[1]:1
scatter ios17 data=fp32[2]:0,0 indices=int32[1]:-1 updates=fp32[1]:1 validate_indices=bool:1
scatter_nd ios15 data=fp32[2]:0,0 indices=int32[1,1]:2 updates=fp32[1]:1
scatter_along_axis ios15 data=fp32[2]:0,0 indices=int32[1]:-2147483648 updates=fp32[1]:1
gather_nd ios15 x=fp32[2]:0,0 indices=int32[1,1]:2
reverse_sequence ios15 x=fp32[2,1]:0,0 lengths=int32[1]:3 seq_axis=int32:0 batch_axis=int32:1
reverse_sequence ios15 x=fp32[2,1]:0,0 lengths=int32[1]:-1 seq_axis=int32:0 batch_axis=int32:1
slice_update ios18 x=fp32[2]:0,0 update=fp32[2]:1,1 begin=int32[1]:0 end=int32[1]:1
crop_resize ios17 x=fp32[1,1,1,1]:0 boxes=fp32[1,4]:0,0,0,0 box_indices=int32[1]:1";

#[test]
fn impossible_values_are_errors() {
    for line in REFUSED.lines() {
        for numerics in BOTH {
            let error = Case::parse(line).run(numerics).expect_err(line);
            let op = line.split(' ').next().unwrap();
            assert!(error.message().contains(op), "{line}: {error}");
            assert!(matches!(error.kind(), ErrorKind::Evaluate | ErrorKind::OutOfMemory), "{line}: {error}");
        }
    }
}
