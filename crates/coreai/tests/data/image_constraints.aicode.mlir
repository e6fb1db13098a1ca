"builtin.module"() ({
  "aicode.serialization.asset"() <{version = #aicode.serialization.integer<(32bit unsigned) 20251217>}> ({
    "aicode.dataflow.graph_v1"() <{argAttrs = #aicode.serialization.array<[#aicode.serialization.array<[#aicode.serialization.opaque<"aicode.name" = [#aicode.serialization.string<"x">]>]>]>, externalize = #aicode.serialization.integer<(1bit unsigned) 0>, functionType = #aicode.serialization.type<!aicode.function_v1<(operands !aicode.image_v1<<k32ARGB> x 4 x 6, image_constraints = <AXCVPixelBuffer, rowAlignmentsPerPlane: [64]>>) -> (results !aicode.tensor_v1<[4, 6, 4] : !aicode.uint8_v1>)>>, isPrivate = #aicode.serialization.integer<(1bit unsigned) 0>, name = #aicode.serialization.string<"main">, noInline = #aicode.serialization.integer<(1bit unsigned) 0>, paramDecls = #aicode.serialization.array<>, resAttrs = #aicode.serialization.array<[#aicode.serialization.array<[#aicode.serialization.opaque<"aicode.name" = [#aicode.serialization.string<"y">]>]>]>}> ({
    ^bb0(%arg0: !aicode.image_v1<<k32ARGB> x 4 x 6, image_constraints = <AXCVPixelBuffer, rowAlignmentsPerPlane: [64]>>):
      %0 = "aicode.primitive.image_to_tensor_v1"(%arg0) : (!aicode.image_v1<<k32ARGB> x 4 x 6, image_constraints = <AXCVPixelBuffer, rowAlignmentsPerPlane: [64]>>) -> !aicode.tensor_v1<[4, 6, 4] : !aicode.uint8_v1>
      "aicode.dataflow.output_v1"(%0) : (!aicode.tensor_v1<[4, 6, 4] : !aicode.uint8_v1>) -> ()
    }) : () -> ()
  }) : () -> ()
}) : () -> ()
