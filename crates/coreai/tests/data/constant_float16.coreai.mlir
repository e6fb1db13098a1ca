module {
  coreai.graph @main() -> (tensor<3x2xf16> {coreai.name = "y"}) {
    %0 = coreai.constant dense<[[1.000000e+00, 0.000000e+00], [1.000000e+00, 1.000000e+00], [1.000000e+00, 0.000000e+00]]> : tensor<3x2xf16>
    coreai.output %0 : tensor<3x2xf16>
  }
}
