//! The kinds of attributes and types, with their numbers, names and fields.

use super::FieldKind::{
    self, Attribute, Attributes, Bits, Byte, Bytes, Resource, Signeds, String, Strings, Type, Types, Unsigned,
};

/// A kind of attributes or types.
#[derive(Debug, PartialEq, Eq)]
pub struct Kind {
    /// The number that begins the bytes.
    pub code: u64,
    /// The name in the dialect, as coreai-core prints it.
    pub name: &'static str,
    /// The fields that follow the number, in the order of the file.
    pub fields: &'static [FieldKind],
}

const fn kind(code: u64, name: &'static str, fields: &'static [FieldKind]) -> Kind {
    Kind { code, name, fields }
}

/// The kinds of attributes, seen in files written by coreai-core 1.0.0b3.
pub const ATTRIBUTES: &[Kind] = &[
    kind(1, "serialization.string", &[String]),
    // Width in bits, whether it is unsigned, bits.
    kind(2, "serialization.integer", &[Unsigned, Byte, Bits]),
    // Width in bits, bits; a bfloat16 looks like a float16.
    kind(3, "serialization.float", &[Unsigned, Bits]),
    kind(4, "serialization.type", &[Type]),
    kind(5, "serialization.array", &[Attributes]),
    // Whether the bytes are one element for all, little-endian bytes.
    kind(6, "serialization.dense_elements", &[Byte, Bytes]),
    kind(7, "serialization.dense_resource", &[Resource]),
    kind(9, "serialization.opaque", &[String, Attributes]),
    // Alignments, interleave factors, the allocation.
    kind(12, "ax.hw_constraints_v1", &[Signeds, Signeds, Unsigned]),
    kind(14, "symbol_ref_v1", &[Strings]),
    kind(16, "param.constant_v1", &[Attribute, Type]),
    kind(17, "padding_mode_v1", &[Unsigned]),
    kind(18, "execution.lifecycle_phase_v1", &[Unsigned]),
    kind(19, "approximate_v1", &[Unsigned]),
    kind(20, "scatter_mode_v1", &[Unsigned]),
    // The scheme, widths of positions and coordinates, 0, the number of elements that are stored.
    kind(21, "sparse_tensor_encoding_v1", &[Unsigned, Unsigned, Unsigned, Unsigned, Unsigned]),
    kind(25, "scan_combiner_v1", &[Unsigned]),
    // What holds the image, alignments of rows for each plane.
    kind(26, "ax.image_constraints_v1", &[Unsigned, Signeds]),
    kind(27, "four_cc_v1", &[Unsigned]),
    kind(28, "execution.compilation_v1", &[Unsigned]),
    // Platform, chip, options of delegates.
    kind(29, "execution.target_spec_v1", &[Attribute, Attribute, Attribute]),
    // Name, folder, SHA-256.
    kind(30, "debuginfo.file_v1", &[String, String, String]),
    // File, first line and column, last line and column.
    kind(31, "debuginfo.source_v1", &[Attribute, Unsigned, Unsigned, Unsigned, Unsigned]),
    // Language, file, producer, whether it is optimized, flags, all files.
    kind(32, "debuginfo.compile_unit_v1", &[String, Attribute, String, Unsigned, String, Attributes]),
    kind(33, "debuginfo.metadata_value_v1", &[Attribute]),
    kind(35, "debuginfo.metadata_v1", &[String, Attribute]),
    // Type, unit, file, name, name for linking, 0.
    kind(36, "debuginfo.subprogram_v1", &[Type, Attribute, Attribute, String, String, Unsigned]),
    // Source, scope, other locations of the same operation, metadata.
    kind(40, "debuginfo.location_v1", &[Attribute, Attribute, Attributes, Attributes]),
    kind(43, "interpolation_mode_v1", &[Unsigned]),
    kind(45, "serialization.dictionary", &[Attributes]),
    kind(46, "unit_v1", &[]),
];

/// The kinds of types, seen in files written by coreai-core 1.0.0b3.
pub const TYPES: &[Kind] = &[
    // Extents, of which `i64::MIN` is not known; the type of elements.
    kind(2, "tensor_v1", &[Signeds, Type]),
    // The same with an encoding or constraints.
    kind(3, "tensor_v1", &[Signeds, Type, Attribute]),
    kind(4, "bool_v1", &[]),
    kind(5, "float64_v1", &[]),
    kind(6, "float32_v1", &[]),
    kind(7, "float16_v1", &[]),
    kind(8, "bfloat16_v1", &[]),
    kind(9, "float8E5M2_v1", &[]),
    kind(10, "float8E4M3FN_v1", &[]),
    kind(12, "complex_float32_v1", &[]),
    kind(17, "sint64_v1", &[]),
    kind(18, "sint32_v1", &[]),
    kind(19, "sint16_v1", &[]),
    kind(20, "sint8_v1", &[]),
    kind(21, "sint4_v1", &[]),
    kind(22, "sint2_v1", &[]),
    kind(23, "uint64_v1", &[]),
    kind(24, "uint32_v1", &[]),
    kind(25, "uint16_v1", &[]),
    kind(26, "uint8_v1", &[]),
    kind(27, "uint4_v1", &[]),
    kind(28, "uint2_v1", &[]),
    kind(29, "uint1_v1", &[]),
    // Types of results, types of operands.
    kind(30, "function_v1", &[Types, Types]),
    kind(31, "handle_v1", &[Type]),
    kind(32, "token_v1", &[]),
    kind(33, "param.symbol_v1", &[]),
    kind(36, "uint6_v1", &[]),
    kind(37, "uint3_v1", &[]),
    // Pixel format, height, width.
    kind(39, "image_v1", &[Attribute, Unsigned, Unsigned]),
    // The same with constraints.
    kind(40, "image_v1", &[Attribute, Unsigned, Unsigned, Attribute]),
    kind(41, "debuginfo.unresolved_v1", &[Type]),
    kind(46, "float4E2M1FN_v1", &[]),
    kind(47, "float8E8M0FN_v1", &[]),
];

/// The words for the number of an attribute that is one of a few, from its name. `None` if the
/// attribute is no such choice or the number has no word.
pub fn words(name: &str, number: u64) -> Option<&'static str> {
    let list: &[(u64, &'static str)] = match name {
        "padding_mode_v1" => &[(1, "constant"), (2, "reflect"), (3, "replicate")],
        "approximate_v1" => &[(0, "none"), (1, "tanh")],
        "scatter_mode_v1" => &[(0, "update"), (1, "add"), (2, "sub"), (3, "mul"), (4, "div"), (5, "max"), (6, "min")],
        "scan_combiner_v1" => &[(0, "sum"), (1, "product"), (2, "min"), (3, "max")],
        "execution.compilation_v1" => &[(0, "full"), (1, "partial"), (2, "finalized")],
        "execution.lifecycle_phase_v1" => &[(0, "stateless")],
        "interpolation_mode_v1" => &[(0, "linear"), (1, "nearest_neighbor")],
        "sparse_tensor_encoding_v1" => &[(0, "bitmask"), (1, "coo"), (2, "csr"), (3, "csc"), (4, "bsr")],
        "ax.hw_constraints_v1" => &[(1, "IOSurface"), (2, "MTLBuffer"), (3, "Heap")],
        "ax.image_constraints_v1" => &[(1, "CVPixelBuffer"), (2, "MTLTexture")],
        // Core Video's pixel formats.
        "four_cc_v1" => {
            &[(24, "k24RGB"), (32, "k32ARGB"), (0x4247_5241, "k32BGRA"), (0x7934_3230, "k420YpCbCr8Planar")]
        }
        _ => return None,
    };
    list.iter().find(|(n, _)| *n == number).map(|(_, word)| *word)
}
