module Main (main) where

import Shop (add, broken)
import Test.Tasty
import Test.Tasty.HUnit

main :: IO ()
main = defaultMain $ testGroup "add"
  [ testCase "passes" $ add 1 2 @?= 3
  , testCase "fails" $
      add 1 2 @?= 4
  , testGroup "nested" [ testCase "errors" $ broken @?= 1 ]
  ]
