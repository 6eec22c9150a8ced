"""Git: commands, objects, trees and branches."""
