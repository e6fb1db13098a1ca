//! `candle-decode MODEL.gguf PROMPT TOKENS` prints the median prefill and decode rates of candle's
//! quantized Llama as JSON.

use std::time::Instant;

use candle_core::quantized::gguf_file;
use candle_core::{Device, Tensor};
use candle_transformers::models::quantized_llama::ModelWeights;

fn median(mut seconds: Vec<f64>) -> f64 {
    seconds.sort_by(f64::total_cmp);
    seconds[seconds.len() / 2]
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let words: Vec<String> = std::env::args().collect();
    let (prompt, tokens): (u32, u32) = (words[2].parse()?, words[3].parse()?);
    let mut file = std::fs::File::open(&words[1])?;
    let content = gguf_file::Content::read(&mut file)?;
    let mut model = ModelWeights::from_gguf(content, &mut file, &Device::Cpu)?;
    let ids: Vec<u32> = (0..prompt).map(|i| 300 + i).collect();
    // Position 0 empties the cache.
    let mut run = |ids: &[u32], at: usize| -> Result<f64, Box<dyn std::error::Error>> {
        let input = Tensor::new(ids, &Device::Cpu)?.unsqueeze(0)?;
        let begun = Instant::now();
        model.forward(&input, at)?.sum_all()?.to_scalar::<f32>()?;
        Ok(begun.elapsed().as_secs_f64())
    };
    run(&ids, 0)?;
    let prefill = (0..5).map(|_| run(&ids, 0)).collect::<Result<Vec<f64>, _>>()?;
    let decode = (0..tokens).map(|i| run(&[400 + i], (prompt + i) as usize)).collect::<Result<Vec<f64>, _>>()?;
    println!(
        "{}",
        serde_json::json!({
            "prefill_tokens_per_second": f64::from(prompt) / median(prefill),
            "decode_tokens_per_second": 1.0 / median(decode),
        })
    );
    Ok(())
}
