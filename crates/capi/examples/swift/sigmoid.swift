// Compiles a program, runs it and prints the result. With ferrane.h next to module.modulemap:
//     swiftc -I . -L PREFIX/lib sigmoid.swift -o sigmoid
import CFerrane

struct FerraneError: Error, CustomStringConvertible {
    let description: String
}

func check(_ status: FerraneStatus) throws {
    if status != FERRANE_OK { throw FerraneError(description: String(cString: ferrane_last_error())) }
}

/// A kernel that is freed with its last reference.
final class Kernel {
    private var handle: OpaquePointer?

    init(_ mil: String, device: OpaquePointer? = nil) throws {
        try check(mil.utf8CString.withUnsafeBufferPointer {
            ferrane_compile(device, $0.baseAddress, $0.count - 1, nil, 0, &handle)
        })
    }

    deinit { ferrane_free(handle) }

    func callAsFunction(_ x: [Float]) throws -> [Float] {
        var port = FerranePort()
        try check(ferrane_write_f32(handle, FERRANE_INPUT, 0, x, x.count))
        try check(ferrane_eval(handle))
        try check(ferrane_port(handle, FERRANE_OUTPUT, 0, &port))
        var y = [Float](repeating: 0, count: port.elements)
        try check(ferrane_read_f32(handle, FERRANE_OUTPUT, 0, &y, y.count))
        return y
    }
}

let sigmoid = try Kernel("""
    program(1.3)
    {
        func main<ios18>(tensor<fp16, [1, 4, 1, 2]> x) {
            tensor<fp16, [1, 4, 1, 2]> y = sigmoid(x = x)[name = string("y")];
        } -> (y);
    }
    """)
print(try sigmoid([0, 1, -1, 2, -2, 4, -4, 60000]))
