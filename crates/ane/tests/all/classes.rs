//! The framework's classes as the runtime reports them.

use ferrane_ane::classes::{bound, differences, dump};
use ferrane_device::ErrorKind;

use crate::path::open;

#[test]
fn the_fakes_classes_are_dumped_and_hold_what_is_bound() {
    let (_fake, _device) = open();
    let classes = dump(None).unwrap();
    assert!(classes.windows(2).all(|pair| pair[0].name < pair[1].name));
    let client = classes.iter().find(|c| c.name == "_ANEClient").unwrap();
    assert_eq!(client.superclass.as_deref(), Some("NSObject"));
    let find = |name: &str| client.methods.iter().find(|m| m.name == name).map(|m| m.types.as_str());
    assert!(find("+sharedConnection").is_some_and(|types| types.starts_with('@')), "{client:?}");
    assert!(find("-beginRealTimeTask").is_some());
    // One side follows the published descriptions, the other the bindings.
    assert_eq!(differences(&classes), []);
    // A class without one of its methods differs in that method.
    let mut less = classes.clone();
    let request = less.iter_mut().find(|c| c.name == "_ANERequest").unwrap();
    let count = bound().iter().filter(|b| b.class == "_ANERequest").count();
    request.methods.clear();
    assert_eq!(differences(&less).len(), count);
    assert_eq!(dump(Some("CoreML")).unwrap_err().kind(), ErrorKind::Unavailable);
}

#[test]
fn the_fake_says_what_machine_it_is() {
    let (_fake, _device) = open();
    let facts = ferrane_ane::facts().unwrap();
    assert_eq!((facts.sub_type.as_deref(), facts.architecture.as_deref()), (Some("h16"), Some("h16g")));
    assert_eq!((facts.engines, facts.cores, facts.profile), (Some(1), Some(16), None));
    assert!(facts.bound > 80 && facts.problems.is_empty(), "{:?}", facts.problems);
}
