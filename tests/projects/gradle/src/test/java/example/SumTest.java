package example;

import static org.junit.Assert.assertEquals;

import org.junit.Ignore;
import org.junit.Test;

public class SumTest {
    @Test
    public void passes() {
        assertEquals(3, 1 + 2);
    }

    @Test
    public void fails() {
        assertEquals(4, 1 + 2);
    }

    @Test
    public void errors() {
        throw new IllegalStateException("boom");
    }

    @Ignore("not today")
    @Test
    public void isSkipped() {}
}
