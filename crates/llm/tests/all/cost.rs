//! The predicted cost of a step, pipeline by pipeline.

use ferrane_llm::config::preset;
use ferrane_llm::cost::training_step;
use ferrane_llm::layout::{PipelineKind, Residual, Shape, WeightForm};
use ferrane_machine::Profile;
use ferrane_machine::cost::{CostModel, StepCost};

fn step(machine: &str, pipeline: PipelineKind) -> StepCost {
    let shape = Shape::new(preset("stories110m").unwrap(), 256, Residual::Fp32, WeightForm::Packed);
    let model = CostModel::for_profile(&Profile::find(machine).unwrap()).unwrap();
    training_step(&shape.with_pipeline(pipeline), 9205, &model).unwrap().unwrap()
}

/// Six kernels have fewer requests, and constants are read without the activations' detour over
/// surfaces. Only constants are compiled for each layer.
#[test]
fn six_kernels_cost_less_than_ten_and_constants_more_compiles() {
    for machine in ["m1", "m4", "m4-max", "m5"] {
        use PipelineKind::{Dynamic, Fused, Static};
        let [ten, six, constants] = [Dynamic, Fused, Static].map(|pipeline| {
            let cost = step(machine, pipeline);
            eprintln!(
                "{machine} {}: step {:.1} ms, engine {:.1} ms, compile {:.0} ms",
                pipeline.name(),
                cost.total_ms(),
                cost.engine_ms,
                cost.compile_ms
            );
            cost
        });
        assert!(six.engine_ms < ten.engine_ms && constants.engine_ms < six.engine_ms, "{machine}");
        assert!(six.total_ms() < ten.total_ms() && constants.total_ms() < six.total_ms(), "{machine}");
        assert!(constants.compile_ms > 5.0 * six.compile_ms, "{machine}");
    }
}
