use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::*;

#[derive(serde::Deserialize)]
struct Case {
    messages: Vec<Message>,
    #[serde(default)]
    tools: Vec<Json>,
    add_generation_prompt: bool,
    #[serde(flatten)]
    extra: Map<String, Json>,
}

#[derive(serde::Deserialize)]
struct Source {
    tokens: Map<String, Json>,
}

#[derive(serde::Deserialize)]
struct Rendered {
    cases: BTreeMap<String, Case>,
    rendered: BTreeMap<String, BTreeMap<String, Option<String>>>,
}

/// `scripts/llm/chat_templates.py` recorded what `transformers` renders. `FERRANE_CHAT_TEMPLATES`
/// names another such folder.
#[test]
fn published_templates_render_as_in_transformers() {
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/chat");
    let folder = std::env::var_os("FERRANE_CHAT_TEMPLATES").map_or(own, PathBuf::from);
    let text = |name: &str| std::fs::read_to_string(folder.join(name)).unwrap();
    let sources: BTreeMap<String, Source> = serde_json::from_str(&text("sources.json")).unwrap();
    let recorded: Rendered = serde_json::from_str(&text("rendered.json")).unwrap();
    assert!(recorded.rendered.len() >= 12 && recorded.cases.len() >= 20);
    let mut failures = String::new();
    for (name, expected) in &recorded.rendered {
        let template = match Template::new(&text(&format!("{name}.jinja"))) {
            Ok(template) => template.with_tokens(sources[name].tokens.clone()).at(1_700_000_000),
            Err(error) => {
                failures += &format!("{name}: {error}\n");
                continue;
            }
        };
        for (case, expected) in expected {
            let Case { messages, tools, add_generation_prompt, extra } = &recorded.cases[case];
            let found = template.render(messages, tools, *add_generation_prompt, extra);
            if found.as_ref().ok() != expected.as_ref() {
                failures += &format!("{name}: {case}:\n  expected {expected:?}\n  found    {found:?}\n");
            }
        }
    }
    assert!(failures.is_empty(), "{failures}");
}

fn render(source: &str) -> Result<String, Error> {
    Template::new(source)?.render(&[Message::new("user", "a")], &[], true, &Map::new())
}

#[test]
fn what_templates_use_of_jinja_behaves_as_in_python() {
    for (source, expected) in [
        (
            "{{ none }} {{ true }} {{ [1, 'a', none] }} {{ 2.0 }} {{ {'a': 1} }}|{{ missing }}",
            "None True [1, 'a', None] 2.0 {'a': 1}|",
        ),
        ("a\n  {% if true %}\nb\n  {% endif %}\nc\n", "a\nb\nc"),
        (
            "{%- for i in range(5) -%}{%- if i == 1 %}{% continue %}{% endif %}{% if i == 3 %}{% break %}{% endif %}{{ i }}{%- endfor -%}",
            "02",
        ),
        ("{% generation %}x{% set y = 1 %}{% endgeneration %}{{ y is defined }}", "xFalse"),
        ("{%- generation -%} x {%- endgeneration -%} y", "xy"),
        (
            "{{ '<a & b>' | tojson }} {{ {'b': 'é', 'a': [1, 2.5]} | tojson(indent=2) }}",
            "\"<a & b>\" {\n  \"b\": \"é\",\n  \"a\": [\n    1,\n    2.5\n  ]\n}",
        ),
        (
            "{{ [1, 2] | tojson(separators=(',', ':')) }} {{ {'b': 1, 'a': 2} | tojson(sort_keys=true) }}",
            "[1,2] {\"a\": 2, \"b\": 1}",
        ),
        (
            "{{ 'abc' is sequence }} {{ 'abc' is iterable }} {{ {} is sequence }} {{ 1 is iterable }}",
            "True True True False",
        ),
        ("{{ messages[::-1][0].content }} {{ 'a-b-c'.split('-')[-1] }} {{ '\\n x '.strip() }}", "a c x"),
        ("{% macro m(x, y='d') %}{{ x }}{{ y }}{% endmacro %}{{ m(1) }}{{ m(1, y=2) }}", "1d12"),
        ("{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + 1 %}{% endfor %}{{ ns.n }}", "1"),
        ("{{ bos_token }}{{ messages[0]['name'] is defined }}", "False"),
    ] {
        assert_eq!(render(source).unwrap(), expected, "{source}");
    }
    let dated = Template::new("{{ strftime_now('%d %b %Y %H:%M') }}").unwrap().at(1_700_000_000);
    assert_eq!(dated.render(&[], &[], false, &Map::new()).unwrap(), "14 Nov 2023 22:13");
    assert!(render("{{ strftime_now('%Y') }}").unwrap().parse::<i32>().unwrap() >= 2025);
}

#[test]
fn hostile_templates_end_with_an_error() {
    let deep = format!("{}{}", "{% if true %}".repeat(4000), "{% endif %}".repeat(4000));
    let nested = format!("{{{{ {}1{} }}}}", "[".repeat(3000), "]".repeat(3000));
    let macros = "{% macro m(x) %}{{ m(x) }}{{ m(x) }}{% endmacro %}{{ m(1) }}";
    let loops = "{% for a in range(90000) %}{% for b in range(90000) %}{% endfor %}{% endfor %}";
    let doubling = "{% set ns = namespace(s='0123456789') %}{% for i in range(60) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}{{ ns.s }}";
    let json = "{% set ns = namespace(s=[1]) %}{% for i in range(9000) %}{% set ns.s = [ns.s] %}{% endfor %}{{ ns.s | tojson }}";
    let printed =
        "{% set ns = namespace(s=[1]) %}{% for i in range(9000) %}{% set ns.s = [ns.s] %}{% endfor %}{{ ns.s }}";
    let million = "{% set ns = namespace(s=[1]) %}{% for i in range(1000) %}{% for j in range(1000) %}\
                   {% set ns.s = [ns.s] %}{% endfor %}{% endfor %}";
    let nested_value = printed.split("{{").next().unwrap();
    let compared = format!("{nested_value}{{{{ ns.s == ns.s }}}}{{{{ 'a' in ns.s }}}}{{{{ ns.s }}}}");
    for source in [
        million,
        &compared,
        &deep,
        &nested,
        macros,
        loops,
        doubling,
        json,
        printed,
        "{{ 'a' * 9000000000 }}",
        "{{ [1] * 99999999999 }}",
    ] {
        let error = render(source).map(|text| text.len()).unwrap_err();
        let known = matches!(error, Error::Limit | Error::Render(_) | Error::Syntax(_));
        assert!(known, "{}: {error}", &source[..40]);
    }
    assert!(matches!(render(loops), Err(Error::Limit)) && matches!(render(doubling), Err(Error::Limit)));
    for source in
        ["{% if %}", "{{ 'a", "{% generation %}", "{{ x | no_such_filter }}", "{% include 'x' %}", "{{ 1 + none }}"]
    {
        assert!(render(source).is_err(), "{source}");
    }
    assert!(matches!(Template::new(&" ".repeat(LONGEST + 1)), Err(Error::Syntax(_))));
    match render("{{ raise_exception('no ' ~ 'way') }}") {
        Err(Error::Refused(message)) => assert_eq!(message, "no way"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn templates_are_found_in_the_files_of_a_model() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let find = || Template::find(folder.path());
    let hello = [Message::new("user", "a")];
    let render = |tools: &[Json]| find().unwrap().unwrap().render(&hello, tools, false, &Map::new()).unwrap();
    assert!(find().unwrap().is_none());
    let config = json!({"bos_token": {"content": "<s>"}, "eos_token": "</s>", "pad_token": null});
    std::fs::write(path("tokenizer_config.json"), config.to_string()).unwrap();
    assert!(find().unwrap().is_none());
    let list = json!([
        {"name": "default", "template": "{{ bos_token }}d{{ eos_token }}{{ pad_token is defined }}"},
        {"name": "tool_use", "template": "t{{ tools | length }}"},
    ]);
    let mut with_list = config.clone();
    with_list["chat_template"] = list;
    std::fs::write(path("tokenizer_config.json"), with_list.to_string()).unwrap();
    assert_eq!((render(&[]).as_str(), render(&[json!({})]).as_str()), ("<s>d</s>False", "t1"));
    std::fs::write(path("chat_template.json"), json!({"chat_template": "j{{ bos_token }}"}).to_string()).unwrap();
    assert_eq!(render(&[json!({})]), "j<s>");
    std::fs::write(path("chat_template.jinja"), "file").unwrap();
    std::fs::create_dir(path("additional_chat_templates")).unwrap();
    std::fs::write(path("additional_chat_templates/tool_use.jinja"), "more").unwrap();
    assert_eq!((render(&[]).as_str(), render(&[json!({})]).as_str()), ("file", "more"));
    // A file of the folder stands for the folder.
    assert!(Template::find(path("model.safetensors")).unwrap().is_some());
    std::fs::write(path("chat_template.jinja"), [0xff]).unwrap();
    assert!(matches!(find(), Err(Error::Io { .. })));
    std::fs::remove_file(path("chat_template.jinja")).unwrap();
    for damaged in ["{", "{\"chat_template\": 1}", "{\"chat_template\": [{\"name\": \"default\"}]}"] {
        std::fs::write(path("chat_template.json"), damaged).unwrap();
        assert!(matches!(find(), Err(Error::Format { .. })), "{damaged}");
    }
}

#[test]
fn a_gguf_file_has_templates_and_their_tokens() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.gguf");
    let save = |metadata: &[(&str, ferrane_gguf::MetadataValue)]| {
        let mut writer = ferrane_gguf::Writer::new();
        metadata.iter().for_each(|(key, value)| writer.metadata(key, value.clone()).unwrap());
        writer.save(&path).unwrap();
    };
    save(&[("tokenizer.ggml.tokens", vec!["<unk>".to_string(), "<s>".into()].into())]);
    assert!(Template::find(&path).unwrap().is_none());
    save(&[
        ("tokenizer.ggml.tokens", vec!["<unk>".to_string(), "<s>".into()].into()),
        ("tokenizer.ggml.bos_token_id", 1u32.into()),
        ("tokenizer.ggml.eos_token_id", 9u32.into()),
        ("tokenizer.ggml.unknown_token_id", 0u32.into()),
        ("tokenizer.chat_template", "{{ bos_token }}d{{ eos_token is defined }}{{ unk_token }}".into()),
        ("tokenizer.chat_templates", vec!["tool_use".to_string(), "absent".into()].into()),
        ("tokenizer.chat_template.tool_use", "t{{ tools | length }}".into()),
    ]);
    let hello = [Message::new("user", "a")];
    // The file, or the folder whose only GGUF file it is.
    for place in [path.as_path(), folder.path()] {
        let template = Template::find(place).unwrap().unwrap();
        let render = |tools: &[Json]| template.render(&hello, tools, false, &Map::new()).unwrap();
        assert_eq!((render(&[]).as_str(), render(&[json!({})]).as_str()), ("<s>dFalse<unk>", "t1"));
    }
    std::fs::write(&path, b"GGUF\x03\0\0\0").unwrap();
    assert!(matches!(Template::find(&path), Err(Error::Format { .. })));
}

#[test]
fn messages_have_the_form_of_openai() {
    let given = json!({"role": "assistant", "content": null, "tool_calls": [
        {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{\"x\": 1}"}}], "reasoning_content": "r"});
    let message: Message = serde_json::from_value(given.clone()).unwrap();
    assert_eq!(serde_json::to_value(&message).unwrap(), given);
    assert_eq!(message.text(), "");
    let parts: Message = serde_json::from_value(
        json!({"role": "user", "tool_calls": null, "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}),
    ).unwrap();
    assert_eq!((parts.text().as_str(), parts.tool_calls.len()), ("ab", 0));
    // The template gets arguments in the form that it takes.
    let objects =
        Template::new("{% for m in messages %}{{ m.tool_calls[0].function.arguments | tojson }}{% endfor %}").unwrap();
    assert_eq!(objects.render(std::slice::from_ref(&message), &[], false, &Map::new()).unwrap(), "{\"x\": 1}");
    let text = "{% for m in messages if m.tool_calls %}{{ 'a' + m.tool_calls[0].function.arguments }}{% endfor %}";
    assert_eq!(Template::new(text).unwrap().render(&[message], &[], false, &Map::new()).unwrap(), "a{\"x\": 1}");
}
