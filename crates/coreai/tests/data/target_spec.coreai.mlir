module {
  coreai.target_spec{spec = <triple = "arm64-apple-ios", soc = "a17", delegateOptions = {a = 1 : si32}>, compilation = <partial>}
  coreai.graph @main(%arg0: tensor<4xf32> {coreai.name = "x"}) -> (tensor<4xf32> {coreai.name = "y"}) {
    coreai.output %arg0 : tensor<4xf32>
  }
}
