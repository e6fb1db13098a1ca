//! Copies of rows whose elements are not neighbors.
//!
//! Every other element, as in the pairs of a rotary embedding or the planes of complex numbers, is
//! copied in vectors; other strides element by element.

use ferrane_host::vectorize;

/// Copies `count` elements: every `source_stride`th one of `from` from element `source` on, to
/// every `stride`th one of `to` from element `at` on.
///
/// # Panics
/// If an element is outside of its slice.
pub(super) fn copy<T: Copy>(
    to: &mut [T],
    (at, stride): (usize, isize),
    from: &[T],
    (source, source_stride): (usize, isize),
    count: usize,
) {
    let Some(last) = count.checked_sub(1) else { return };
    // Every element but the last one begins a pair that lies in the slice.
    match (stride, source_stride) {
        (1, 1) => return to[at..][..count].copy_from_slice(&from[source..][..count]),
        (1, 2) => {
            let (to, pairs) = (&mut to[at..][..last], from[source..][..2 * last].as_chunks::<2>().0);
            vectorize!({
                for (to, pair) in to.iter_mut().zip(pairs) {
                    *to = pair[0];
                }
            });
        }
        // The second element of a pair is stored as it was, so that whole vectors are.
        (2, 1) => {
            let (pairs, from) = (to[at..][..2 * last].as_chunks_mut::<2>().0, &from[source..][..last]);
            vectorize!({
                for (pair, &from) in pairs.iter_mut().zip(from) {
                    *pair = [from, pair[1]];
                }
            });
        }
        (2, 2) => {
            let (to, from) = (&mut to[at..][..2 * last], &from[source..][..2 * last]);
            let (pairs, others) = (to.as_chunks_mut::<2>().0, from.as_chunks::<2>().0);
            vectorize!({
                for (pair, other) in pairs.iter_mut().zip(others) {
                    *pair = [other[0], pair[1]];
                }
            });
        }
        _ => {
            for i in 0..last as isize {
                to[at.wrapping_add_signed(i * stride)] = from[source.wrapping_add_signed(i * source_stride)];
            }
        }
    }
    let last = last as isize;
    to[at.wrapping_add_signed(last * stride)] = from[source.wrapping_add_signed(last * source_stride)];
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_element_has_its_place_and_nothing_else_changes() {
        let from: Vec<u16> = (100..400).collect();
        for count in [0, 1, 2, 3, 16, 33, 70] {
            for stride in [1isize, 2, 3, -1, -2] {
                for source_stride in [0isize, 1, 2, 3, -2] {
                    let begin = |stride: isize, most: usize| if stride < 0 { most - 1 } else { 5 };
                    let (at, source) = (begin(stride, 300), begin(source_stride, 300));
                    let (mut found, mut want) = (vec![7u16; 300], vec![7u16; 300]);
                    for i in 0..count as isize {
                        want[at.wrapping_add_signed(i * stride)] = from[source.wrapping_add_signed(i * source_stride)];
                    }
                    copy(&mut found, (at, stride), &from, (source, source_stride), count);
                    assert_eq!(found, want, "{count} elements, strides {stride} and {source_stride}");
                }
            }
        }
        // Slices that end with the last element.
        for (stride, source_stride) in [(1, 2), (2, 1), (2, 2)] {
            let (mut to, from) = (vec![7u16; 9 * stride + 1], (0..9 * source_stride as u16 + 1).collect::<Vec<_>>());
            copy(&mut to, (0, stride as isize), &from, (0, source_stride as isize), 10);
            assert!((0..10).all(|i| to[i * stride] as usize == i * source_stride));
        }
    }
}
