package broken

import "testing"

func TestNeverSeen(t *testing.T) { undefinedThing() }
