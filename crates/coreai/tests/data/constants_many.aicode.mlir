"builtin.module"() ({
  "aicode.serialization.asset"() <{version = #aicode.serialization.integer<(32bit unsigned) 20250723>}> ({
    "aicode.dataflow.graph_v1"() <{argAttrs = #aicode.serialization.array<[#aicode.serialization.array<[#aicode.serialization.opaque<"aicode.name" = [#aicode.serialization.string<"x">]>]>]>, externalize = #aicode.serialization.integer<(1bit unsigned) 0>, functionType = #aicode.serialization.type<!aicode.function_v1<(operands !aicode.tensor_v1<[1, 2, 32] : !aicode.float32_v1>) -> (results !aicode.tensor_v1<[1, 2, 32] : !aicode.float32_v1>)>>, isPrivate = #aicode.serialization.integer<(1bit unsigned) 0>, name = #aicode.serialization.string<"main">, noInline = #aicode.serialization.integer<(1bit unsigned) 0>, paramDecls = #aicode.serialization.array<>, resAttrs = #aicode.serialization.array<[#aicode.serialization.array<[#aicode.serialization.opaque<"aicode.name" = [#aicode.serialization.string<"y">]>]>]>}> ({
    ^bb0(%arg0: !aicode.tensor_v1<[1, 2, 32] : !aicode.float32_v1>):
      %0 = "aicode.primitive.constant_v1"() <{value = #aicode.serialization.dense_resource<resource_8758375537451263038>}> : () -> !aicode.tensor_v1<[1, 32, 32] : !aicode.float32_v1>
      %1 = "aicode.primitive.constant_v1"() <{value = #aicode.serialization.dense_resource<resource_14944339468276786770>}> : () -> !aicode.tensor_v1<[1, 32, 32] : !aicode.float32_v1>
      %2 = "aicode.primitive.batch_matmul_v1"(%arg0, %1) : (!aicode.tensor_v1<[1, 2, 32] : !aicode.float32_v1>, !aicode.tensor_v1<[1, 32, 32] : !aicode.float32_v1>) -> !aicode.tensor_v1<[1, 2, 32] : !aicode.float32_v1>
      %3 = "aicode.primitive.batch_matmul_v1"(%arg0, %0) : (!aicode.tensor_v1<[1, 2, 32] : !aicode.float32_v1>, !aicode.tensor_v1<[1, 32, 32] : !aicode.float32_v1>) -> !aicode.tensor_v1<[1, 2, 32] : !aicode.float32_v1>
      %4 = "aicode.primitive.add_v1"(%2, %3) : (!aicode.tensor_v1<[1, 2, 32] : !aicode.float32_v1>, !aicode.tensor_v1<[1, 2, 32] : !aicode.float32_v1>) -> !aicode.tensor_v1<[1, 2, 32] : !aicode.float32_v1>
      "aicode.dataflow.output_v1"(%4) : (!aicode.tensor_v1<[1, 2, 32] : !aicode.float32_v1>) -> ()
    }) : () -> ()
  }) : () -> ()
}) : () -> ()

