"builtin.module"() ({
  "aicode.serialization.asset"() <{version = #aicode.serialization.integer<(32bit unsigned) 20260407>}> ({
    "aicode.dataflow.graph_v1"() <{argAttrs = #aicode.serialization.array<[#aicode.serialization.array<[#aicode.serialization.opaque<"aicode.name" = [#aicode.serialization.string<"x">]>]>]>, externalize = #aicode.serialization.integer<(1bit unsigned) 0>, functionType = #aicode.serialization.type<!aicode.function_v1<(operands !aicode.tensor_v1<[4] : !aicode.float32_v1>) -> (results !aicode.tensor_v1<[4] : !aicode.float32_v1>)>>, isPrivate = #aicode.serialization.integer<(1bit unsigned) 0>, name = #aicode.serialization.string<"main">, noInline = #aicode.serialization.integer<(1bit unsigned) 0>, paramDecls = #aicode.serialization.array<>, resAttrs = #aicode.serialization.array<[#aicode.serialization.array<[#aicode.serialization.opaque<"aicode.name" = [#aicode.serialization.string<"y">]>]>]>}> ({
    ^bb0(%arg0: !aicode.tensor_v1<[4] : !aicode.float32_v1>):
      %0 = "aicode.execution.delegate_v2"(%arg0) <{arg_attrs = #aicode.serialization.array<>, delegate_id = #aicode.serialization.string<"BNNS">, lifecycle = #aicode.execution.lifecycle_phase_v1<stateless>, res_attrs = #aicode.serialization.array<>, resource = #aicode.serialization.dense_elements<[splat = false] "AQID">}> : (!aicode.tensor_v1<[4] : !aicode.float32_v1>) -> !aicode.tensor_v1<[4] : !aicode.float32_v1>
      "aicode.dataflow.output_v1"(%0) : (!aicode.tensor_v1<[4] : !aicode.float32_v1>) -> ()
    }) : () -> ()
  }) : () -> ()
}) : () -> ()
