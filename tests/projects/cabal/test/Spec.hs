module Main (main) where

import Shop (add, broken)
import Test.Hspec

main :: IO ()
main = hspec $ do
  describe "add" $ do
    it "passes" $ add 1 2 `shouldBe` 3
    it "fails" $
      add 1 2 `shouldBe` 4
    context "nested" $ do
      it "errors" $ broken `shouldBe` 1
      it "is pending" $ pendingWith "later"
    xit "is skipped" $ True `shouldBe` False
