//! Image files: whatever is decoded is written and read again unchanged.

use ferrane_tensor_io::{Image, image};

/// Decodes the bytes; the pixels of an image survive a PNG file, and any size can be made of them.
pub fn image(data: &[u8]) {
    let Ok(found) = Image::decode(data) else { return };
    // Larger ones only cost time.
    if found.width() * found.height() > 1 << 20 {
        return;
    }
    let color = found.color();
    let tensor = found.tensor(color).expect("a decoded image is a tensor");
    let file = image::to_png(&tensor, color).expect("its tensor is an image");
    assert_eq!(Image::decode(&file).expect("the file is read"), found);
    let resized = found.resized(7, 5).expect("7 x 5 pixels are few");
    assert_eq!((resized.width(), resized.height()), (7, 5));
}
