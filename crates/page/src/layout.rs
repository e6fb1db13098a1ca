//! Where the nodes of a graph are drawn: in layers from top to bottom, after Sugiyama.
//!
//! 1. *Layers*: the longest path from a source. A node that reads nothing moves down to the first
//!    node that reads it.
//! 2. *Tracks*: an edge that spans layers passes each of them at a point. All such edges of a node
//!    share one track, from which they branch off, so a value with many readers is one line. The
//!    number of points is limited ([`GraphLayout::far`]): time and memory stay proportional to the
//!    number of nodes and edges.
//! 3. *Order* in each layer: barycenters, from top to bottom and back; the order with the fewest
//!    crossings is kept.
//! 4. *Positions* (Brandes and Köpf, 2001): items that follow one another form blocks, which are
//!    straight; blocks are packed from each of the four corners. The mean of the results is taken,
//!    or the one with the straightest lines.

/// The distance between neighbors of a layer.
const GAP: f32 = 22.0;
/// The width that a track takes.
const TRACK: f32 = 10.0;
/// A track is cut where the next reader is further away than this many layers.
const REACH: u32 = 400;
/// Points of tracks per node, and at least.
const POINTS: (usize, usize) = (6, 4096);
/// Sweeps that look for an order; for large graphs the second number.
const SWEEPS: (usize, usize) = (24, 8);
/// Graphs with more items than this are large.
const LARGE: usize = 20_000;

/// A drawing of a graph, in pixels at full size. Layers are rows of the same height.
#[derive(Clone, Debug, Default)]
pub(crate) struct GraphLayout {
    /// The center of each node.
    pub x: Vec<f32>,
    /// The layer of each node, from 0.
    pub layer: Vec<u32>,
    /// The points of each node's track, in the layers below it; usually empty.
    pub tracks: Vec<Vec<f32>>,
    /// Edges that are too long for a track, as pairs of nodes.
    pub far: Vec<(u32, u32)>,
    /// The number of layers.
    pub layers: u32,
    /// The width of everything; centers lie between 0 and this.
    pub width: f32,
}

/// A node, or a point of a track.
#[derive(Clone, Copy, Debug)]
struct Item {
    width: f32,
    is_point: bool,
}

/// Items in layers, and which are joined.
struct Grid {
    items: Vec<Item>,
    layers: Vec<Vec<u32>>,
    above: Vec<Vec<u32>>,
    below: Vec<Vec<u32>>,
    /// The first point of each node's track, and the number of its points.
    tracks: Vec<(usize, u32)>,
    /// Edges without a track.
    far: Vec<(u32, u32)>,
}

/// Places nodes of these widths. Edges lead from smaller to larger indices.
pub(crate) fn layout(widths: &[f32], edges: &[(u32, u32)]) -> GraphLayout {
    let layer = layers(widths.len(), edges);
    let mut grid = grid(widths, edges, &layer);
    order(&mut grid);
    let at = positions(&grid);
    let left = grid.items.iter().zip(&at).map(|(i, x)| x - i.width / 2.0).fold(f32::INFINITY, f32::min);
    let right = grid.items.iter().zip(&at).map(|(i, x)| x + i.width / 2.0).fold(f32::NEG_INFINITY, f32::max);
    let left = if left.is_finite() { left } else { 0.0 };
    let shifted = |i: usize| at[i] - left;
    GraphLayout {
        x: (0..widths.len()).map(shifted).collect(),
        tracks: grid
            .tracks
            .iter()
            .map(|(first, points)| (0..*points as usize).map(|i| shifted(first + i)).collect())
            .collect(),
        far: grid.far,
        layers: grid.layers.len() as u32,
        width: if right.is_finite() { right - left } else { 0.0 },
        layer,
    }
}

fn layers(nodes: usize, edges: &[(u32, u32)]) -> Vec<u32> {
    let mut layer = vec![0u32; nodes];
    let mut sorted = edges.to_vec();
    sorted.sort_unstable_by_key(|(_, to)| *to);
    let mut is_source = vec![true; nodes];
    for &(from, to) in &sorted {
        is_source[to as usize] = false;
        layer[to as usize] = layer[to as usize].max(layer[from as usize] + 1);
    }
    let mut nearest = vec![u32::MAX; nodes];
    for &(from, to) in edges {
        nearest[from as usize] = nearest[from as usize].min(layer[to as usize]);
    }
    for node in (0..nodes).filter(|n| is_source[*n] && nearest[*n] != u32::MAX) {
        layer[node] = nearest[node] - 1;
    }
    layer
}

/// Nodes and the points of their tracks.
fn grid(widths: &[f32], edges: &[(u32, u32)], layer: &[u32]) -> Grid {
    let nodes = widths.len();
    let mut readers: Vec<Vec<u32>> = vec![Vec::new(); nodes];
    edges.iter().for_each(|(from, to)| readers[*from as usize].push(*to));
    let mut reach: Vec<u32> = (0..nodes)
        .map(|n| {
            readers[n].sort_unstable_by_key(|to| layer[*to as usize]);
            let mut last = layer[n] + 1;
            for &to in &readers[n] {
                let at = layer[to as usize];
                if at - last > REACH {
                    break;
                }
                last = at.max(last);
            }
            last - layer[n] - 1
        })
        .collect();
    // Short tracks come first when there are too many points.
    let mut by_length: Vec<usize> = (0..nodes).filter(|n| reach[*n] > 0).collect();
    by_length.sort_by_key(|n| reach[*n]);
    let mut left = (POINTS.0 * nodes).max(POINTS.1);
    for node in by_length {
        match left.checked_sub(reach[node] as usize) {
            Some(rest) => left = rest,
            None => reach[node] = 0,
        }
    }
    let mut items: Vec<Item> = widths.iter().map(|w| Item { width: *w, is_point: false }).collect();
    let mut rows = vec![Vec::new(); layer.iter().max().map_or(0, |l| *l as usize + 1)];
    (0..nodes).for_each(|n| rows[layer[n] as usize].push(n as u32));
    let mut first = vec![0; nodes];
    let mut joined = Vec::new();
    let mut far = Vec::new();
    for node in 0..nodes {
        first[node] = items.len();
        for step in 0..reach[node] {
            let point = items.len() as u32;
            rows[(layer[node] + 1 + step) as usize].push(point);
            joined.push((if step == 0 { node as u32 } else { point - 1 }, point));
            items.push(Item { width: TRACK, is_point: true });
        }
        for &to in &readers[node] {
            let span = layer[to as usize] - layer[node];
            match span {
                1 => joined.push((node as u32, to)),
                _ if span - 1 <= reach[node] => joined.push(((first[node] as u32) + span - 2, to)),
                _ => far.push((node as u32, to)),
            }
        }
    }
    let (mut above, mut below) = (vec![Vec::new(); items.len()], vec![Vec::new(); items.len()]);
    for (from, to) in joined {
        below[from as usize].push(to);
        above[to as usize].push(from);
    }
    Grid { items, layers: rows, above, below, tracks: first.into_iter().zip(reach).collect(), far }
}

/// Sorts the layers so that few lines cross.
fn order(grid: &mut Grid) {
    let sweeps = if grid.items.len() > LARGE { SWEEPS.1 } else { SWEEPS.0 };
    let mut place = vec![0.0f32; grid.items.len()];
    let note = |row: &[u32], place: &mut [f32]| row.iter().enumerate().for_each(|(i, n)| place[*n as usize] = i as f32);
    grid.layers.iter().for_each(|row| note(row, &mut place));
    let (mut best, mut fewest) = (grid.layers.clone(), u64::MAX);
    let mut idle = 0;
    for sweep in 0..sweeps {
        let down = sweep % 2 == 0;
        let count = grid.layers.len();
        for step in 0..count {
            let at = if down { step } else { count - 1 - step };
            let neighbors = if down { &grid.above } else { &grid.below };
            let wanted = |n: &u32| {
                let near = &neighbors[*n as usize];
                // An item without neighbors keeps its place.
                if near.is_empty() {
                    return place[*n as usize];
                }
                near.iter().map(|m| place[*m as usize]).sum::<f32>() / near.len() as f32
            };
            let mut keyed: Vec<(f32, u32)> = grid.layers[at].iter().map(|n| (wanted(n), *n)).collect();
            keyed.sort_by(|a, b| a.0.total_cmp(&b.0));
            grid.layers[at] = keyed.into_iter().map(|(_, n)| n).collect();
            note(&grid.layers[at], &mut place);
        }
        let crossed = crossings(grid, &place);
        idle += 1;
        if crossed < fewest {
            (fewest, idle) = (crossed, 0);
            best.clone_from(&grid.layers);
        }
        if fewest == 0 || idle > 5 {
            break;
        }
    }
    grid.layers = best;
}

/// The number of pairs of lines that cross, counted by inversions in a Fenwick tree.
fn crossings(grid: &Grid, place: &[f32]) -> u64 {
    let mut count = 0u64;
    for (row, under) in grid.layers.iter().zip(grid.layers.iter().skip(1)) {
        let mut tree = vec![0u32; under.len() + 1];
        let mut seen = 0u32;
        for &from in row {
            let mut ends: Vec<usize> = grid.below[from as usize].iter().map(|n| place[*n as usize] as usize).collect();
            ends.sort_unstable();
            for &end in &ends {
                let (mut i, mut before) = (end + 1, 0);
                while i > 0 {
                    before += tree[i];
                    i &= i - 1;
                }
                count += u64::from(seen - before);
            }
            for end in ends {
                let mut i = end + 1;
                while i < tree.len() {
                    tree[i] += 1;
                    i += i & i.wrapping_neg();
                }
                seen += 1;
            }
        }
    }
    count
}

/// A view of the grid from one of its four corners: rows from the top or from the bottom, items of
/// a row from the left or from the right.
struct Corner<'a> {
    grid: &'a Grid,
    from_below: bool,
    from_right: bool,
    /// The position of each item in its row, seen from the corner.
    place: Vec<u32>,
}

impl<'a> Corner<'a> {
    fn of(grid: &'a Grid, from_below: bool, from_right: bool) -> Corner<'a> {
        let mut place = vec![0; grid.items.len()];
        for row in &grid.layers {
            for (i, &n) in row.iter().enumerate() {
                place[n as usize] = if from_right { row.len() - 1 - i } else { i } as u32;
            }
        }
        Corner { grid, from_below, from_right, place }
    }

    fn row(&self, index: usize) -> Vec<u32> {
        let count = self.grid.layers.len();
        let mut row = self.grid.layers[if self.from_below { count - 1 - index } else { index }].clone();
        if self.from_right {
            row.reverse();
        }
        row
    }

    /// The neighbors in the row before, in order.
    fn before(&self, n: u32) -> Vec<u32> {
        let all = if self.from_below { &self.grid.below } else { &self.grid.above };
        let mut near = all[n as usize].clone();
        near.sort_unstable_by_key(|m| self.place[*m as usize]);
        near
    }

    /// True if a node leads to a node of this row, which a track must leave straight.
    fn leads_to_node(&self, n: u32) -> bool {
        let all = if self.from_below { &self.grid.above } else { &self.grid.below };
        all[n as usize].iter().any(|m| !self.is_point(*m))
    }

    fn is_point(&self, n: u32) -> bool {
        self.grid.items[n as usize].is_point
    }

    /// The block of each item, named by one of its items: items that stand above one another. An
    /// item joins the median of its neighbors, a node preferably one that is a node, so that a
    /// chain is straight and what is added later runs alongside. No two such joins cross, and none
    /// crosses a track.
    fn blocks(&self) -> Vec<u32> {
        let mut block: Vec<u32> = (0..self.grid.items.len() as u32).collect();
        for index in 1..self.grid.layers.len() {
            let row = self.row(index);
            let mut free = 0;
            let tracks = self.tracks(&row);
            let mut passed = 0;
            for &n in &row {
                while tracks.get(passed).is_some_and(|(to, _)| *to < self.place[n as usize]) {
                    passed += 1;
                }
                let mut near = self.before(n);
                if !self.is_point(n) && near.iter().any(|m| !self.is_point(*m)) {
                    near.retain(|m| !self.is_point(*m));
                } else if self.is_point(n) {
                    near.retain(|m| self.is_point(*m) || !self.leads_to_node(*m));
                }
                let Some(last) = near.len().checked_sub(1) else { continue };
                for m in [near[last / 2], near[last.div_ceil(2)]] {
                    let at = self.place[m as usize];
                    let left = passed.checked_sub(1).map_or(0, |i| tracks[i].1 + 1);
                    let is_track = self.is_point(n) && self.is_point(m);
                    let right = tracks.get(passed).map_or(u32::MAX, |(_, from)| *from);
                    let uncrossed = is_track || (at >= left && at < right);
                    if at >= free && uncrossed {
                        block[n as usize] = block[m as usize];
                        free = at + 1;
                        break;
                    }
                }
            }
        }
        block
    }

    /// The pieces of tracks that end in a row, as places there and in the row before. Those that
    /// another one crosses are left out.
    fn tracks(&self, row: &[u32]) -> Vec<(u32, u32)> {
        let mut found: Vec<(u32, u32)> = Vec::new();
        for &n in row.iter().filter(|n| self.is_point(**n)) {
            for m in self.before(n).into_iter().filter(|m| self.is_point(*m)) {
                let at = self.place[m as usize];
                if found.last().is_none_or(|(_, from)| at > *from) {
                    found.push((self.place[n as usize], at));
                }
            }
        }
        found
    }

    /// Positions, with blocks as near to the corner as distances allow.
    fn positions(&self) -> Vec<f32> {
        let block = self.blocks();
        // For each block those that stand next to it in some row, with the distance of the centers.
        let mut next: Vec<Vec<(u32, f32)>> = vec![Vec::new(); block.len()];
        let mut waiting = vec![0u32; block.len()];
        for index in 0..self.grid.layers.len() {
            for pair in self.row(index).windows(2) {
                let [a, b] = [pair[0] as usize, pair[1] as usize];
                let distance = (self.grid.items[a].width + self.grid.items[b].width) / 2.0 + GAP;
                next[block[a] as usize].push((block[b], distance));
                waiting[block[b] as usize] += 1;
            }
        }
        let mut order: Vec<u32> =
            (0..block.len() as u32).filter(|n| block[*n as usize] == *n && waiting[*n as usize] == 0).collect();
        let mut x = vec![0.0f32; block.len()];
        let mut at = 0;
        while let Some(&n) = order.get(at) {
            at += 1;
            for &(to, distance) in &next[n as usize] {
                x[to as usize] = x[to as usize].max(x[n as usize] + distance);
                waiting[to as usize] -= 1;
                if waiting[to as usize] == 0 {
                    order.push(to);
                }
            }
        }
        // What has room moves to what stands next to it.
        for &n in order.iter().rev() {
            let room = next[n as usize].iter().map(|(to, distance)| x[*to as usize] - distance).reduce(f32::min);
            if let Some(room) = room.filter(|room| *room > x[n as usize]) {
                x[n as usize] = room;
            }
        }
        let sign = if self.from_right { -1.0 } else { 1.0 };
        block.iter().map(|b| sign * x[*b as usize]).collect()
    }
}

/// The mean of the two middle ones of four layouts, which begin at the four corners; or that one of
/// them whose lines lead less to the side.
fn positions(grid: &Grid) -> Vec<f32> {
    let corners = [(false, false), (false, true), (true, false), (true, true)];
    let mut found = corners.map(|(below, right)| Corner::of(grid, below, right).positions());
    let ends = |x: &[f32]| {
        let half = |n: usize| grid.items[n].width / 2.0;
        let low = x.iter().enumerate().map(|(n, x)| x - half(n)).fold(f32::INFINITY, f32::min);
        let high = x.iter().enumerate().map(|(n, x)| x + half(n)).fold(f32::NEG_INFINITY, f32::max);
        (low, high)
    };
    let all = found.each_ref().map(|x| ends(x));
    let narrow = all.iter().copied().min_by(|a, b| (a.1 - a.0).total_cmp(&(b.1 - b.0))).unwrap_or((0.0, 0.0));
    for ((x, (low, high)), (_, right)) in found.iter_mut().zip(all).zip(corners) {
        let shift = if right { narrow.1 - high } else { narrow.0 - low };
        x.iter_mut().for_each(|x| *x += shift);
    }
    let middle = |n: usize| {
        let mut four = found.each_ref().map(|x| x[n]);
        four.sort_by(f32::total_cmp);
        (four[1] + four[2]) / 2.0
    };
    let mean: Vec<f32> = (0..grid.items.len()).map(middle).collect();
    let sideways = |x: &[f32]| -> f64 {
        let lines = grid.below.iter().enumerate().flat_map(|(n, all)| all.iter().map(move |m| (n, *m as usize)));
        lines.map(|(n, m)| f64::from((x[n] - x[m]).abs())).sum()
    };
    // The mean is symmetric, but where all branches lead back to one side it leans.
    let wanted = sideways(&mean) * 0.98;
    let best = found.into_iter().map(|x| (sideways(&x), x)).min_by(|a, b| a.0.total_cmp(&b.0));
    best.filter(|(length, _)| *length < wanted).map_or(mean, |(_, x)| x)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(widths: &[f32], edges: &[(u32, u32)]) -> GraphLayout {
        let found = layout(widths, edges);
        for &(from, to) in edges {
            assert!(found.layer[from as usize] < found.layer[to as usize], "{from} -> {to}");
        }
        let mut rows: std::collections::BTreeMap<u32, Vec<(f32, f32)>> = Default::default();
        for (n, width) in widths.iter().enumerate() {
            assert!(found.x[n].is_finite());
            rows.entry(found.layer[n]).or_default().push((found.x[n], *width));
            for (i, x) in found.tracks[n].iter().enumerate() {
                rows.entry(found.layer[n] + 1 + i as u32).or_default().push((*x, TRACK));
            }
        }
        for row in rows.values_mut() {
            row.sort_by(|a, b| a.0.total_cmp(&b.0));
            for pair in row.windows(2) {
                let least = (pair[0].1 + pair[1].1) / 2.0 + GAP - 0.5;
                assert!(pair[1].0 - pair[0].0 >= least, "{pair:?} overlap");
            }
        }
        found
    }

    #[test]
    fn a_chain_is_straight_and_a_residual_runs_alongside() {
        // 0 → 1 → 2 → 3, and 0 → 3.
        let found = check(&[80.0, 120.0, 60.0, 90.0], &[(0, 1), (1, 2), (2, 3), (0, 3)]);
        assert_eq!(found.layer, [0, 1, 2, 3]);
        assert_eq!(found.tracks[0].len(), 2);
        assert!((found.x[1] - found.x[2]).abs() < 12.0 && (found.x[2] - found.x[3]).abs() < 12.0, "{:?}", found.x);
        assert!((found.tracks[0][0] - found.tracks[0][1]).abs() < 12.0, "{:?}", found.tracks);
    }

    #[test]
    fn a_column_of_branches_does_not_lean() {
        // Each op feeds three, of which the first continues and the others join it one by one.
        let mut edges = Vec::new();
        for block in 0..50u32 {
            let at = 6 * block;
            edges.extend([(at, at + 1), (at, at + 2), (at, at + 3), (at + 1, at + 4), (at + 2, at + 4)]);
            edges.extend([(at + 3, at + 5), (at + 4, at + 5), (at + 5, at + 6)]);
        }
        let found = check(&[80.0; 301], &edges);
        assert!(found.width < 500.0, "{}", found.width);
    }

    #[test]
    fn sources_stand_above_their_first_reader() {
        let found = check(&[50.0; 5], &[(0, 2), (2, 3), (1, 4), (3, 4)]);
        assert_eq!(found.layer, [0, 2, 1, 2, 3]);
    }

    #[test]
    fn two_pairs_do_not_cross() {
        // 0 and 1 feed 3 and 2.
        let found = check(&[50.0; 4], &[(0, 3), (1, 2)]);
        assert_eq!(found.x[0] < found.x[1], found.x[3] < found.x[2]);
    }

    #[test]
    fn a_value_that_every_op_reads_is_one_track_and_long_ways_are_cut() {
        let nodes = 3000u32;
        let chain = (1..nodes).map(|n| (n - 1, n));
        let edges: Vec<_> = chain.chain((2..nodes).map(|n| (0, n))).collect();
        let found = check(&vec![60.0; nodes as usize], &edges);
        assert_eq!(found.tracks[0].len(), nodes as usize - 2);
        assert!(found.far.is_empty());
        // Every op is read by the last one: too many points.
        let chain = (1..nodes).map(|n| (n - 1, n));
        let edges: Vec<_> = chain.chain((0..nodes - 2).map(|n| (n, nodes - 1))).collect();
        let found = check(&vec![60.0; nodes as usize], &edges);
        let points: usize = found.tracks.iter().map(Vec::len).sum();
        assert!(points <= POINTS.0 * nodes as usize && found.far.len() > 2000, "{points} {}", found.far.len());
    }

    #[test]
    fn nothing_is_placed_where_nothing_is() {
        let found = layout(&[], &[]);
        assert_eq!((found.layers, found.width), (0, 0.0));
        assert_eq!(check(&[40.0, 40.0], &[]).layers, 1);
    }
}
