module {
  coreai.graph private noinline @helper(%arg0: tensor<2x3xf32> {coreai.name = "a"}) -> (tensor<2x3xf32> {coreai.name = "y"}) attributes {composite_decl = #coreai.composite_declaration<"thing" = {a = 1.500000e+00 : f32, b = [1 : si64, 2 : si64], c = "s", d = true, e = -2.500000e+00 : f64, f = 3 : si64, g = {h = "i"}, k = -7 : si32, l = 1.000000e+00 : f16, m = 1.875000e+00 : f16, n = 200 : ui8, o}>} {
    %0 = coreai.exp %arg0 : tensor<2x3xf32> -> tensor<2x3xf32>
    coreai.output %0 : tensor<2x3xf32>
  }
  coreai.graph @main(%arg0: tensor<2x3xf32> {coreai.name = "x"}) -> (tensor<2x3xf32> {coreai.name = "y"}) {
    %0 = coreai.invoke @helper(%arg0)  : (tensor<2x3xf32>) -> tensor<2x3xf32>
    coreai.output %0 : tensor<2x3xf32>
  }
}
