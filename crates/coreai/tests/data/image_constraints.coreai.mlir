module {
  coreai.graph @main(%arg0: !coreai.image<<k32ARGB> x 4 : i64 x 6 : i64, image_constraints = #coreaix.image_constraints<CVPixelBuffer, rowAlignmentsPerPlane: [64]>> {coreai.name = "x"}) -> (tensor<4x6x4xui8> {coreai.name = "y"}) {
    %0 = coreai.image_to_tensor %arg0 : <<k32ARGB> x 4 : i64 x 6 : i64, image_constraints = #coreaix.image_constraints<CVPixelBuffer, rowAlignmentsPerPlane: [64]>> -> tensor<4x6x4xui8>
    coreai.output %0 : tensor<4x6x4xui8>
  }
}
