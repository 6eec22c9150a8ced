const std = @import("std");

test "passes" {
    try std.testing.expectEqual(3, 1 + 2);
}

test "fails" {
    try std.testing.expectEqual(4, 1 + 2);
}

test "errors" {
    return error.Boom;
}

test "is skipped" {
    return error.SkipZigTest;
}
