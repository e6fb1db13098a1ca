//! The predicted cost of a step, pipeline by pipeline, and of generation.

use ferrane_llm::config::preset;
use ferrane_llm::cost::{
    GenerationCost, GenerationCostError, GenerationShape, PublishedRuns, generation, training_step,
};
use ferrane_llm::decode::quantize::WeightType;
use ferrane_llm::layout::{PipelineKind, Residual, Shape, WeightForm};
use ferrane_machine::Profile;
use ferrane_machine::cost::published::{Pipelines as _, TrainerPipeline};
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
        use PipelineKind::{Dynamic, Fused, Static, StaticExtras};
        let [ten, six, constants, extras] = [Dynamic, Fused, Static, StaticExtras].map(|pipeline| {
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
        // Extras move work from the CPU to the engine.
        assert!(extras.engine_ms > constants.engine_ms && extras.compile_ms > constants.compile_ms, "{machine}");
        assert!(extras.classifier_ms < constants.classifier_ms && extras.rms_ms < constants.rms_ms, "{machine}");
    }
}

/// The static trainer's step on an M4 sets the rate of its copies; its step with extras does not,
/// and follows from it (training-static §3).
#[test]
fn the_static_trainers_steps_of_an_m4_agree() {
    let model = CostModel::for_chip("m4").unwrap();
    let trainer = |pipeline| {
        let cost = PublishedRuns.step(pipeline, "stories110m", &model).unwrap();
        // Its forward norms are a small part of the kernels.
        cost.total_ms() - cost.parts.forward_rms_ms
    };
    for (pipeline, published) in [(TrainerPipeline::Static, 107.0), (TrainerPipeline::StaticExtras, 91.8)] {
        let predicted = trainer(pipeline);
        assert!((predicted / published - 1.0).abs() < 0.02, "{pipeline:?}: {predicted} and not {published} ms");
    }
    // The same kernels with this project's code around them copy at the rate of its other
    // pipelines.
    let own = step("m4", PipelineKind::Static).total_ms();
    assert!(own < 0.9 * trainer(TrainerPipeline::Static), "{own}");
}

fn generated(of: WeightType, prompt: usize, least: usize) -> Result<GenerationCost, GenerationCostError> {
    let model = CostModel::for_profile(&Profile::find("m4").unwrap()).unwrap();
    generation(&GenerationShape { config: &preset("stories15m").unwrap(), of, prompt, least }, &model)
}

#[test]
fn generation_costs_its_windows() {
    let dispatch = CostModel::for_chip("m4").unwrap().dispatch_us() / 1e3;
    let layers = preset("stories15m").unwrap().layers as f64;
    for of in [WeightType::Fp16, WeightType::Int8, WeightType::Int4] {
        let at = |prompt| generated(of, prompt, 1).unwrap();
        // Two programs a layer; one token of a prompt is like one after it.
        assert!(at(1).token_ms >= 2.0 * layers * dispatch, "{of:?}");
        assert_eq!((at(1).prompt_ms, at(2).prompt_ms), (at(1).token_ms, 2.0 * at(1).token_ms), "{of:?}");
        // The first window has no cache; those after it are alike.
        let [one, two, three] = [256, 512, 768].map(|prompt| at(prompt).prompt_ms);
        assert!(one > at(32).prompt_ms && two > 2.0 * one && three > 1.5 * two, "{of:?}: {one} {two} {three}");
        assert!(at(512).prefill_rate() > at(512).decode_rate(), "{of:?}");
    }
    // A machine whose windows are wider takes longer for a token.
    let tokens = [1, 16].map(|least| generated(WeightType::Fp16, 300, least).unwrap().token_ms);
    assert!(tokens[1] >= tokens[0], "{tokens:?}");
    for prompt in [0, i32::MAX as usize, usize::MAX] {
        assert!(matches!(generated(WeightType::Fp16, prompt, 1), Err(GenerationCostError::Prompt(_))), "{prompt}");
    }
}
