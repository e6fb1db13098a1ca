module {
  coreai.graph @main() -> (tensor<f32> {coreai.name = "y"}, tensor<f32> {coreai.name = "y1"}, tensor<f32> {coreai.name = "y2"}, tensor<f32> {coreai.name = "y3"}, tensor<f16> {coreai.name = "y4"}, tensor<si64> {coreai.name = "y5"}, tensor<ui64> {coreai.name = "y6"}, tensor<i1> {coreai.name = "y7"}, tensor<f32> {coreai.name = "y8"}) {
    %0 = coreai.constant dense<1.500000e+00> : tensor<f32>
    %1 = coreai.constant dense<0x7F800000> : tensor<f32>
    %2 = coreai.constant dense<0x7FC00000> : tensor<f32>
    %3 = coreai.constant dense<-0.000000e+00> : tensor<f32>
    %4 = coreai.constant dense<9.997550e-02> : tensor<f16>
    %5 = coreai.constant dense<-1099511627776> : tensor<si64>
    %6 = coreai.constant dense<9223372036854775808> : tensor<ui64>
    %7 = coreai.constant dense<true> : tensor<i1>
    coreai.output %0, %1, %2, %3, %4, %5, %6, %7, %1 : tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f16>, tensor<si64>, tensor<ui64>, tensor<i1>, tensor<f32>
  }
}
