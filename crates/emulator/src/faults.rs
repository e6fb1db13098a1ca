//! Fault injection, so that a program that uses the engine can test its own recovery.
//!
//! A fault names a compile, load or evaluation of an opened emulator, and what goes wrong with it.
//! Each stage is counted separately from 1, in the order in which calls begin; a reload counts as a
//! load, and a repeated evaluation as another one. So the same calls meet the same faults in every
//! run, unless several threads call at once. Faults need no limits and no profile.
//!
//! ```text
//! faults = rule { ";" rule }
//! rule   = stage ":" when "=" action | "ports=reverse" | "budget=" N
//! stage  = "compile" | "load" | "evaluate"
//! when   = N | "every" N | "from" N
//! action = "fail" | "delay" N ("us" | "ms" | "s") | "kill"
//!        | "invalid"                   compile: the text is no valid program
//!        | "budget"                    compile, load: the compile budget is spent
//!        | "0x" STATUS                 load, evaluate: the status word of the failure
//!        | "corrupt" [ "0x" MASK ]     evaluate: flips these bits (all) of one element of an output
//!        | "nan"                       evaluate: one element of an output is not a number
//! ```
//!
//! `evaluate:7=0x1d; load:from 3=fail; compile:every 5=delay 20ms` is an example. Several rules may
//! apply to one call: delays add up, and the first failure is reported. Failures have the engine's
//! own message, followed by the rule that caused them.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use ferrane_device::{Error, ErrorKind, Result};

/// The syntax of a list of faults, for messages and help.
pub const GRAMMAR: &str = "expected `STAGE:WHEN=ACTION; ...`, `ports=reverse` or `budget=N`; STAGE is compile, load or evaluate; WHEN is N, \
                       every N or from N, counted from 1; ACTION is fail, kill, delay N us|ms|s, invalid (compile), budget (compile, \
                       load), 0xSTATUS (load, evaluate), corrupt [0xMASK] or nan (evaluate)";

/// A stage of a program's life that can fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FaultStage {
    /// A compile of a program.
    Compile,
    /// A load, also the one of a reload.
    Load,
    /// An evaluation, submitted or not.
    Evaluate,
}

/// Which calls of a stage, counted from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum When {
    /// The call with this number.
    Nth(u64),
    /// Every call whose number is a multiple of this.
    Every(u64),
    /// The call with this number and all later ones.
    From(u64),
}

/// What happens to a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Action {
    /// The stage's usual failure: `ANECCompile() FAILED`, load failure 0x20004, evaluation status
    /// 0x16.
    Fail,
    /// A compile fails with `InvalidMILProgram`.
    Invalid,
    /// A compile or load fails as if the compile budget were spent.
    Budget,
    /// A load or evaluation fails with this status word.
    Status(u32),
    /// The call is delayed by this time.
    Delay(Duration),
    /// An evaluation succeeds, and these bits of one element of an output are flipped.
    Corrupt(u32),
    /// An evaluation succeeds, and one element of an output is not a number; an integer has all
    /// bits set.
    Nan,
    /// The process aborts, as if it had crashed.
    Kill,
}

/// A stage, its calls, and what happens to them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Rule {
    pub stage: FaultStage,
    pub when: When,
    pub action: Action,
}

/// The faults of a device; the default has none. `Display` writes them in the grammar of the
/// module, and [`Faults::parse`] reads them back.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    pub(crate) rules: Vec<Rule>,
    /// Ports of compiled programs are in reverse order.
    pub(crate) reversed: bool,
    /// The compile budget, whatever the limits are.
    pub(crate) budget: Option<usize>,
}

impl Faults {
    /// Parses a list of faults; an empty text has none.
    ///
    /// # Errors
    /// [`ErrorKind::Option`] with the rule at fault and the grammar.
    pub fn parse(text: &str) -> Result<Faults> {
        let mut faults = Faults::default();
        for rule in text.split(';').map(str::trim).filter(|r| !r.is_empty()) {
            let bad = || Error::new(ErrorKind::Option, format!("fault `{rule}`: {GRAMMAR}"));
            let (key, value) = rule.split_once('=').ok_or_else(bad)?;
            let (key, value) = (key.trim(), value.trim());
            match key {
                "ports" if value == "reverse" => faults.reversed = true,
                "budget" => faults.budget = Some(value.parse().map_err(|_| bad())?),
                _ => {
                    let (stage, when) = key.split_once(':').ok_or_else(bad)?;
                    let stage = stage_of(stage.trim()).ok_or_else(bad)?;
                    let (when, action) = when_of(when).zip(action_of(value)).ok_or_else(bad)?;
                    faults = faults.with(stage, when, action).map_err(|_| bad())?;
                }
            }
        }
        Ok(faults)
    }

    /// The same faults and one more.
    ///
    /// # Errors
    /// [`ErrorKind::Option`] for an action that the stage does not support, or a count of 0.
    pub fn with(mut self, stage: FaultStage, when: When, action: Action) -> Result<Faults> {
        let fits = match action {
            Action::Fail | Action::Delay(_) | Action::Kill => true,
            Action::Invalid => stage == FaultStage::Compile,
            Action::Budget => stage != FaultStage::Evaluate,
            Action::Status(_) => stage != FaultStage::Compile,
            Action::Corrupt(_) | Action::Nan => stage == FaultStage::Evaluate,
        };
        let counted = !matches!(when, When::Nth(0) | When::Every(0) | When::From(0));
        let rule = Rule { stage, when, action };
        if !(fits && counted) {
            return Err(Error::new(ErrorKind::Option, format!("fault `{rule}`: {GRAMMAR}")));
        }
        self.rules.push(rule);
        Ok(self)
    }

    /// Whether any fault names this stage.
    pub(crate) fn touch(&self, stage: FaultStage) -> bool {
        self.rules.iter().any(|r| r.stage == stage)
    }

    /// The faults of the `n`-th call of a stage.
    pub(crate) fn at(&self, stage: FaultStage, n: u64) -> impl Iterator<Item = &Rule> {
        self.rules.iter().filter(move |r| r.stage == stage && r.when.meets(n))
    }
}

impl When {
    fn meets(self, n: u64) -> bool {
        match self {
            When::Nth(at) => n == at,
            When::Every(step) => step != 0 && n.is_multiple_of(step),
            When::From(first) => n >= first,
        }
    }
}

fn stage_of(word: &str) -> Option<FaultStage> {
    [FaultStage::Compile, FaultStage::Load, FaultStage::Evaluate].into_iter().find(|s| s.to_string() == word)
}

fn when_of(text: &str) -> Option<When> {
    let words: Vec<&str> = text.split_whitespace().collect();
    match words[..] {
        [n] => n.parse().ok().map(When::Nth),
        ["every", n] => n.parse().ok().map(When::Every),
        ["from", n] => n.parse().ok().map(When::From),
        _ => None,
    }
}

fn action_of(text: &str) -> Option<Action> {
    let words: Vec<&str> = text.split_whitespace().collect();
    Some(match words[..] {
        ["fail"] => Action::Fail,
        ["invalid"] => Action::Invalid,
        ["budget"] => Action::Budget,
        ["kill"] => Action::Kill,
        ["nan"] => Action::Nan,
        ["corrupt"] => Action::Corrupt(u32::MAX),
        ["corrupt", mask] => Action::Corrupt(word_of(mask)?),
        ["delay", time] => Action::Delay(duration_of(time)?),
        [status] => Action::Status(word_of(status)?),
        _ => return None,
    })
}

fn word_of(text: &str) -> Option<u32> {
    u32::from_str_radix(text.strip_prefix("0x")?, 16).ok()
}

fn duration_of(text: &str) -> Option<Duration> {
    let (number, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit())?);
    let number = number.parse().ok()?;
    Some(match unit {
        "us" => Duration::from_micros(number),
        "ms" => Duration::from_millis(number),
        "s" => Duration::from_secs(number),
        _ => return None,
    })
}

impl FromStr for Faults {
    type Err = Error;
    fn from_str(text: &str) -> Result<Faults> {
        Faults::parse(text)
    }
}

impl fmt::Display for FaultStage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            FaultStage::Compile => "compile",
            FaultStage::Load => "load",
            FaultStage::Evaluate => "evaluate",
        })
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.when {
            When::Nth(n) => write!(f, "{}:{n}=", self.stage)?,
            When::Every(n) => write!(f, "{}:every {n}=", self.stage)?,
            When::From(n) => write!(f, "{}:from {n}=", self.stage)?,
        }
        match self.action {
            Action::Fail => f.write_str("fail"),
            Action::Invalid => f.write_str("invalid"),
            Action::Budget => f.write_str("budget"),
            Action::Status(status) => write!(f, "{status:#x}"),
            Action::Delay(time) => write!(f, "delay {}us", time.as_micros()),
            Action::Corrupt(u32::MAX) => f.write_str("corrupt"),
            Action::Corrupt(mask) => write!(f, "corrupt {mask:#x}"),
            Action::Nan => f.write_str("nan"),
            Action::Kill => f.write_str("kill"),
        }
    }
}

impl fmt::Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rules = self.rules.iter().map(Rule::to_string);
        let reversed = self.reversed.then(|| "ports=reverse".to_string());
        let budget = self.budget.map(|n| format!("budget={n}"));
        f.write_str(&rules.chain(reversed).chain(budget).collect::<Vec<_>>().join("; "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_of_faults() {
        let text = "compile:3=fail; evaluate:100 = 0x1d;evaluate:every 50=0x16; evaluate:7=delay 20ms; evaluate:9=corrupt; \
                    evaluate:9=corrupt 0x7c00; evaluate:9=nan; load:2=0x20004; load:from 5=budget; compile:1=invalid; \
                    ports=reverse; evaluate:500=kill; budget=30;";
        let faults = Faults::parse(text).unwrap();
        assert_eq!((faults.rules.len(), faults.reversed, faults.budget), (11, true, Some(30)));
        assert_eq!(Faults::parse(&faults.to_string()).unwrap(), faults);
        let actions = |stage, n| faults.at(stage, n).map(|r| r.action).collect::<Vec<_>>();
        assert_eq!(actions(FaultStage::Evaluate, 100), [Action::Status(0x1d), Action::Status(0x16)]);
        assert_eq!(actions(FaultStage::Evaluate, 7), [Action::Delay(Duration::from_millis(20))]);
        assert_eq!(actions(FaultStage::Evaluate, 9), [Action::Corrupt(u32::MAX), Action::Corrupt(0x7c00), Action::Nan]);
        assert_eq!(actions(FaultStage::Compile, 9), []);
        assert_eq!((actions(FaultStage::Load, 4), actions(FaultStage::Load, 6)), (vec![], vec![Action::Budget]));
        assert_eq!(Faults::parse(" ;; ").unwrap(), Faults::default());
    }

    #[test]
    fn what_is_no_fault_is_told_with_the_grammar() {
        let wrong = [
            "evaluate",
            "evaluate:3",
            "evaluate=fail",
            "evaluate:0=fail",
            "evaluate:every 0=fail",
            "evaluate:-1=fail",
            "evaluate:1 2=fail",
            "run:1=fail",
            "evaluate:1=explode",
            "evaluate:1=0xfffffffff",
            "evaluate:1=1d",
            "evaluate:1=delay 20",
            "evaluate:1=delay ms",
            "evaluate:1=delay 20h",
            "evaluate:1=delay 99999999999999999999s",
            "evaluate:1=invalid",
            "evaluate:1=budget",
            "compile:1=0x1d",
            "compile:1=corrupt",
            "load:1=nan",
            "ports=shuffle",
            "budget=many",
        ];
        for text in wrong {
            let error = Faults::parse(&format!("load:1=fail; {text}")).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Option);
            assert!(error.message().starts_with(&format!("fault `{text}`: expected `STAGE:WHEN=ACTION")), "{error}");
        }
    }
}
