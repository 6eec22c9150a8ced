package it

import (
	"testing"
	"time"
)

func TestBefore(t *testing.T) {}

func TestHangs(t *testing.T) { time.Sleep(time.Hour) }

func TestZAfter(t *testing.T) {}
