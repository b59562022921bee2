@0x84e5bedfe3c2c60a;
using Cxx = import "/capnp/c++.capnp";
$Cxx.namespace("troupe::wire");

# The step plane's two messages. Lists of small records are columns of numbers: a step of 256
# sequences is a handful of flat lists instead of a thousand pointers. Variable-length lists inside
# a record are one column of counts and one of all their entries.

struct Plan {
  protocol @0 :UInt32;
  epoch @1 :UInt32;
  step @2 :UInt64;
  released @3 :List(UInt32);
  started @4 :List(NewSequence);

  # One entry a sequence.
  ids @5 :List(UInt32);
  firstPositions @6 :List(Int32);
  tokens @7 :List(Int32);
  samples @8 :List(Bool);
  newBlockCounts @9 :List(UInt32);

  newBlocks @10 :List(Int32);

  draftCounts @11 :List(UInt32);
  drafts @12 :List(Int32);

  # Most steps swap nothing.
  swappedOut @13 :List(UInt32);
  outCounts @14 :List(UInt32);
  outHostBlocks @15 :List(Int32);

  swappedIn @16 :List(UInt32);
  inHostCounts @17 :List(UInt32);
  inHostBlocks @18 :List(Int32);
  inCounts @19 :List(UInt32);
  inBlocks @20 :List(Int32);

  # Empty in nearly all steps.
  widenedLayers @21 :List(Int32);
}

struct NewSequence {
  id @0 :UInt32;
  promptTokens @1 :Int32;
  tokens @2 :List(Int32);

  temperature @3 :Float32;
  topK @4 :Int32;
  topP @5 :Float32;
  minP @6 :Float32;
  seed @7 :UInt64;
  maxTokens @8 :Int32;
  ignoreEos @9 :Bool;
  stopTokenIds @10 :List(Int32);
  logprobs @11 :Int32;
  promptLogprobs @12 :Int32;
  choice @13 :UInt32;
  minTokens @14 :Int32;
  repetitionPenalty @15 :Float32;
  frequencyPenalty @16 :Float32;
  presencePenalty @17 :Float32;
  biasedTokens @18 :List(Int32);
  biases @19 :List(Float32);
  allowedTokenIds @20 :List(Int32);
  badWordLengths @21 :List(UInt32);
  badWordTokens @22 :List(Int32);

  cachedTokens @23 :Int32;
}

struct Result {
  protocol @0 :UInt32;
  epoch @1 :UInt32;
  step @2 :UInt64;
  modelUs @3 :UInt32;

  # One entry a sequence.
  ids @4 :List(UInt32);
  failed @5 :List(Bool);
  tokenCounts @6 :List(UInt32);
  logprobCounts @7 :List(UInt32);
  promptBegins @8 :List(Int32);
  promptLogprobCounts @9 :List(UInt32);

  tokens @10 :List(Int32);

  # For each sequence, those of its sampled tokens.
  logprobs @11 :Logprobs;
  # For each sequence, those of its prompt.
  promptLogprobs @12 :Logprobs;

  draftCounts @13 :List(UInt32);
  drafts @14 :List(Int32);

  sharedPositions @15 :UInt64;
}

struct Logprobs {
  chosen @0 :List(Float32);
  topCounts @1 :List(UInt32);
  topIds @2 :List(Int32);
  topLogprobs @3 :List(Float32);
  ranks @4 :List(Int32);
}
