#include "runtime/call/codec.hpp"

#include <random>

#include <gtest/gtest.h>

#include "runtime/call/actor_address.hpp"

namespace troupe {

enum class Colour : std::uint8_t { red, green };

struct Inner {
  int x = 0;
  std::string text;
  bool operator==(const Inner&) const = default;
  template <class Archive>
  void fields(Archive& archive) {
    archive(x, text);
  }
};

struct Everything {
  bool flag = false;
  double real = 0;
  Colour colour = Colour::red;
  std::vector<float> block;
  std::vector<Inner> inners;
  std::optional<std::string> maybe;
  std::map<std::string, std::vector<int>> table;
  std::unordered_map<int, Inner> hashed;
  std::pair<int, std::string> pair;
  std::tuple<int, bool, double> tuple;
  std::array<std::int16_t, 3> array{};
  bool operator==(const Everything&) const = default;
  template <class Archive>
  void fields(Archive& archive) {
    archive(flag, real, colour, block, inners, maybe, table, hashed, pair, tuple, array);
  }
};

Everything example() {
  Everything all;
  all.flag = true;
  all.real = -1.5;
  all.colour = Colour::green;
  all.block = {1, 2, 3.5F};
  all.inners = {{1, "one"}, {2, ""}};
  all.maybe = "yes";
  all.table = {{"a", {1, 2}}, {"b", {}}};
  all.hashed = {{7, {8, "nine"}}};
  all.pair = {3, "three"};
  all.tuple = {4, true, 0.25};
  all.array = {-1, 0, 1};
  return all;
}

TEST(Codec, gives_back_every_kind_of_value) {
  const auto decoded = decode<Everything>(encode(example()));
  ASSERT_TRUE(decoded.ok()) << decoded.error().message;
  EXPECT_EQ(*decoded, example());
}

TEST(Codec, refuses_every_truncation_and_what_is_left_over) {
  Bytes bytes = encode(example());
  for (std::size_t length = 0; length < bytes.size(); ++length) {
    const auto decoded = decode<Everything>(std::span(bytes).first(length));
    ASSERT_FALSE(decoded.ok()) << "the first " << length << " of " << bytes.size()
                               << " bytes were accepted";
    ASSERT_EQ(decoded.error().code, ErrorCode::corrupt_data);
  }
  bytes.push_back(std::byte{0});
  EXPECT_FALSE(decode<Everything>(bytes).ok()) << "one byte too many was accepted";
}

TEST(Codec, survives_random_garbage) {
  for (unsigned seed = 0; seed < 20000; ++seed) {
    std::mt19937 random(seed);
    Bytes bytes = encode(example());
    if (seed % 2 == 0) {
      bytes.resize(random() % 200);
      for (auto& byte : bytes) byte = static_cast<std::byte>(random());
    } else {
      for (int i = 0; i < 3; ++i) bytes[random() % bytes.size()] = static_cast<std::byte>(random());
    }
    const auto decoded = decode<Everything>(bytes);
    if (decoded.ok()) continue;
    ASSERT_EQ(decoded.error().code, ErrorCode::corrupt_data) << "seed " << seed;
  }
}

TEST(Codec, does_not_believe_counts_beyond_the_message) {
  const Bytes bytes = encode(std::uint64_t{1} << 60, std::uint32_t{1});
  EXPECT_FALSE(decode<std::vector<double>>(bytes).ok());
  EXPECT_FALSE(decode<std::string>(bytes).ok());
  EXPECT_FALSE(decode<std::vector<Inner>>(bytes).ok());
}

TEST(Codec, refuses_a_bool_that_is_neither) {
  const Bytes bytes = encode(std::uint8_t{2});
  EXPECT_FALSE(decode<bool>(bytes).ok());
}

}  // namespace troupe
