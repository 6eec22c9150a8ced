<?php

use PHPUnit\Framework\TestCase;

final class SumTest extends TestCase
{
    public function testPasses(): void
    {
        $this->assertSame(3, 1 + 2);
    }

    public function testFails(): void
    {
        $this->assertSame(4, 1 + 2);
    }

    public function testEqualArrays(): void
    {
        $this->assertEquals(['a' => 2], ['a' => 1]);
    }

    public function testErrors(): void
    {
        throw new RuntimeException('boom');
    }

    public function testIsSkipped(): void
    {
        $this->markTestSkipped('not today');
    }

    /** @dataProvider numbers */
    public function testEach(int $n): void
    {
        $this->assertNotSame(2, $n);
    }

    public static function numbers(): array
    {
        return ['one' => [1], 'two' => [2]];
    }
}
