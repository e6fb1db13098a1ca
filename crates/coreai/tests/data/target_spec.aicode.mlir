"builtin.module"() ({
  "aicode.serialization.asset"() <{version = #aicode.serialization.integer<(32bit unsigned) 20260107>}> ({
    "aicode.execution.target_spec_v1"() <{compilation = #aicode.execution.compilation_v1<partial>, spec = #aicode.execution.target_spec_v1<triple = <"arm64-apple-ios">, soc = <"a17">, delegateOptions = <[#aicode.serialization.opaque<"a" = [#aicode.serialization.integer<(32bit signed) 1>]>]>>}> : () -> ()
    "aicode.dataflow.graph_v1"() <{argAttrs = #aicode.serialization.array<[#aicode.serialization.array<[#aicode.serialization.opaque<"aicode.name" = [#aicode.serialization.string<"x">]>]>]>, externalize = #aicode.serialization.integer<(1bit unsigned) 0>, functionType = #aicode.serialization.type<!aicode.function_v1<(operands !aicode.tensor_v1<[4] : !aicode.float32_v1>) -> (results !aicode.tensor_v1<[4] : !aicode.float32_v1>)>>, isPrivate = #aicode.serialization.integer<(1bit unsigned) 0>, name = #aicode.serialization.string<"main">, noInline = #aicode.serialization.integer<(1bit unsigned) 0>, paramDecls = #aicode.serialization.array<>, resAttrs = #aicode.serialization.array<[#aicode.serialization.array<[#aicode.serialization.opaque<"aicode.name" = [#aicode.serialization.string<"y">]>]>]>}> ({
    ^bb0(%arg0: !aicode.tensor_v1<[4] : !aicode.float32_v1>):
      "aicode.dataflow.output_v1"(%arg0) : (!aicode.tensor_v1<[4] : !aicode.float32_v1>) -> ()
    }) : () -> ()
  }) : () -> ()
}) : () -> ()
