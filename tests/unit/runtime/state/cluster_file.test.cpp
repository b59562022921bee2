#include "runtime/state/cluster_file.hpp"

#include <array>
#include <cerrno>
#include <fstream>
#include <ranges>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "tests/support/another_uid.hpp"
#include "tests/support/temporary_folder.hpp"

namespace troupe {
namespace {

namespace fs = std::filesystem;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

/// The file of a cluster whose driver is this process.
ClusterFile own_file(std::string id = "0a") {
  ClusterFile file{.protocol = 7, .name = "stories", .id = std::move(id), .program = "/bin/it"};
  file.host = "c7";
  auto mark = own_process_mark();
  if (!mark.ok()) throw std::runtime_error(mark.error().message);
  file.driver = *std::move(mark);
  file.since_ms = 1'700'000'000'123;
  file.address = "10.0.0.7";
  file.port = 4242;
  for (std::size_t i = 0; i < file.key.bytes.size(); ++i) file.key.bytes[i] = std::byte(i * 7);
  return file;
}

/// The text with the line of this word replaced; an empty line removes it.
std::string with_line(const std::string& word, const std::string& line) {
  std::string text = own_file().text();
  const auto begin = text.find("\n" + word + " ") + 1;
  const auto end = text.find('\n', begin) + 1;
  return text.replace(begin, end - begin, line.empty() ? "" : line + "\n");
}

TEST(ClusterFile, is_read_as_it_was_written) {
  const ClusterFile file = own_file();
  const auto read = ClusterFile::parse(file.text());
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(read->text(), file.text());
  EXPECT_EQ(read->driver, file.driver);
  EXPECT_EQ(read->key.bytes, file.key.bytes);
  EXPECT_EQ(read->since_ms, file.since_ms);
}

TEST(ClusterFile, that_is_cut_off_anywhere_is_refused) {
  const std::string text = own_file().text();
  for (std::size_t size = 0; size < text.size(); ++size) {
    const auto read = ClusterFile::parse(std::string_view(text).substr(0, size));
    EXPECT_FALSE(read.ok()) << "the first " << size << " of " << text.size() << " bytes";
  }
}

TEST(ClusterFile, whose_values_are_no_values_is_refused_by_name) {
  const std::pair<const char*, const char*> lines[] = {
      {"pid", "pid 99999999999"}, {"pid", "pid 12x"},     {"pid", "pid "},
      {"port", "port 65536"},     {"port", "port -1"},    {"protocol", "protocol x"},
      {"started", "started -3"},  {"since", "since 1e9"}, {"key", "key 00"},
      {"key", "key zz"},          {"key", "key"}};
  for (const auto& [word, line] : lines) {
    const auto read = ClusterFile::parse(with_line(word, line));
    ASSERT_FALSE(read.ok()) << line;
    EXPECT_THAT(read.error().message, HasSubstr(word)) << line;
  }
  for (const char* line : {"pid 0", "pid -7", "port 0", "address "}) {
    const std::string word = std::string(line).substr(0, std::string(line).find(' '));
    EXPECT_FALSE(ClusterFile::parse(with_line(word, line)).ok()) << line;
  }
  for (const char* word : {"pid", "port", "address", "key"}) {
    EXPECT_FALSE(ClusterFile::parse(with_line(word, "")).ok()) << "without " << word;
  }
}

TEST(ClusterFile, of_another_kind_is_refused) {
  std::string binary(5000, '\0');
  for (const std::string& text :
       {std::string(), std::string("\n"), std::string("troupe-cluster 2\nkey 00\n"), binary}) {
    EXPECT_FALSE(ClusterFile::parse(text).ok());
  }
}

TEST(ClusterFile, may_have_lines_of_later_versions) {
  EXPECT_TRUE(ClusterFile::parse(with_line("name", "colour blue")).ok());
}

TEST(ClusterFile, of_a_hostile_name_has_no_further_lines_and_stays_in_its_folder) {
  ClusterFile file = own_file("../../id");
  file.name = "a\nkey 00\naddress 6.6.6.6";
  file.host = "../../../etc\n/cron";
  const auto read = ClusterFile::parse(file.text());
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(read->name, "a?key 00?address 6.6.6.6");
  EXPECT_EQ(read->address, file.address);
  EXPECT_EQ(read->key.bytes, file.key.bytes);
  EXPECT_THAT(file.file_name(), Not(HasSubstr("/")));
  EXPECT_THAT(file.file_name(), Not(HasSubstr("\n")));
  EXPECT_THAT(file.file_name(), EndsWith(".cluster"));
}

/// A folder of cluster files.
class ClusterFolder : public testing::Test {
 protected:
  std::string folder() const { return (root_.path() / "state/clusters").string(); }
  PublishedCluster publish(const ClusterFile& file) const {
    auto published = PublishedCluster::publish(folder(), file);
    if (!published.ok()) throw std::runtime_error(published.error().message);
    return *std::move(published);
  }
  FoundClusters found() const {
    auto found = find_clusters(folder());
    if (!found.ok()) throw std::runtime_error(found.error().message);
    return *std::move(found);
  }
  /// Writes a file that only its user can read.
  fs::path write(const std::string& name, const std::string& text) const {
    const fs::path path = fs::path(folder()) / name;
    std::ofstream(path) << text;
    fs::permissions(path, fs::perms(0600));
    return path;
  }
  std::size_t files() const {
    return static_cast<std::size_t>(std::distance(fs::directory_iterator(folder()), {}));
  }

 private:
  const tests::TemporaryFolder root_;
};

TEST_F(ClusterFolder, has_the_file_as_long_as_it_is_published) {
  EXPECT_THAT(found().clusters, IsEmpty()) << "there is no folder yet";
  {
    auto published = publish(own_file());
    struct stat info{};
    ASSERT_EQ(::stat(published.path().c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 0777, 0600U);
    ASSERT_EQ(::stat(folder().c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 0777, 0700U);
    const auto clusters = found().clusters;
    ASSERT_THAT(clusters, SizeIs(1));
    EXPECT_EQ(clusters[0].path, published.path());
    EXPECT_TRUE(clusters[0].is_alive);
    const PublishedCluster moved = std::move(published);
    EXPECT_EQ(files(), 1U);
  }
  EXPECT_EQ(files(), 0U);
}

TEST_F(ClusterFolder, takes_no_second_file_of_the_same_cluster) {
  const auto published = publish(own_file());
  const auto again = PublishedCluster::publish(folder(), own_file());
  EXPECT_TRUE(again.ok()) << "the same driver may write it anew";
  EXPECT_EQ(files(), 1U);
}

TEST_F(ClusterFolder, lists_the_oldest_first) {
  ClusterFile old = own_file("0b");
  old.since_ms = 5;
  const auto first = publish(own_file("0a")), second = publish(old);
  EXPECT_EQ(found().clusters.at(0).file.id, "0b");
}

TEST_F(ClusterFolder, loses_the_files_of_drivers_that_have_ended_and_keeps_those_not_known) {
  const auto published = publish(own_file());
  ClusterFile killed = own_file("0b");
  killed.driver.started -= 1;
  write(killed.file_name(), killed.text());
  ClusterFile rebooted = own_file("0c");
  rebooted.driver.boot = "another";
  write(rebooted.file_name(), rebooted.text());
  ClusterFile elsewhere = own_file("0d");
  elsewhere.host = "c8";
  elsewhere.driver.boot = "another";
  elsewhere.driver.machine = "another";
  write(elsewhere.file_name(), elsewhere.text());
  const auto seen = found();
  EXPECT_THAT(seen.ended, SizeIs(2));
  ASSERT_THAT(seen.clusters, SizeIs(2));
  EXPECT_EQ(std::ranges::count_if(seen.clusters, [](const auto& c) { return c.is_alive; }), 1);
  EXPECT_THAT(found().ended, IsEmpty());
  EXPECT_EQ(files(), 2U);
}

TEST_F(ClusterFolder, does_not_read_what_is_not_a_private_file_of_this_user) {
  const auto published = publish(own_file());
  const fs::path at = folder();
  const std::string text = own_file("0b").text();
  fs::permissions(write("a-1-1.cluster", text), fs::perms(0640));
  fs::create_symlink(write("hidden", text), at / "b-1-1.cluster");
  ASSERT_EQ(::mkfifo((at / "c-1-1.cluster").c_str(), 0600), 0);
  fs::create_directory(at / "d-1-1.cluster");
  write("e-1-1.cluster", std::string(std::size_t{1} << 20, 'x'));
  write("f-1-1.cluster", "");
  const auto seen = found();
  EXPECT_THAT(seen.clusters, SizeIs(1));
  EXPECT_THAT(seen.problems, SizeIs(6));
  for (const std::string& problem : seen.problems) EXPECT_THAT(problem, HasSubstr("-1-1.cluster "));
}

TEST_F(ClusterFolder, of_another_owner_or_open_to_others_is_refused) {
  {
    const auto published = publish(own_file());
  }
  fs::permissions(folder(), fs::perms(0755));
  const auto open = find_clusters(folder());
  ASSERT_FALSE(open.ok());
  EXPECT_EQ(open.error().code, ErrorCode::permission_denied);
  EXPECT_THAT(open.error().message, HasSubstr("chmod 700"));
  EXPECT_FALSE(PublishedCluster::publish(folder(), own_file()).ok());
  if (!test::can_change_uid()) GTEST_SKIP() << "only root can give files to another user";
  fs::permissions(folder(), fs::perms(0700));
  const fs::path given = write("a-1-1.cluster", own_file("0b").text());
  ASSERT_EQ(::chown(given.c_str(), 65534, 65534), 0);
  const auto seen = found();
  EXPECT_THAT(seen.clusters, IsEmpty());
  ASSERT_THAT(seen.problems, SizeIs(1));
  EXPECT_THAT(seen.problems[0], HasSubstr("belongs to another user (uid 65534)"));
  ASSERT_EQ(::chown(folder().c_str(), 65534, 65534), 0);
  const auto foreign = find_clusters(folder());
  ASSERT_FALSE(foreign.ok());
  EXPECT_EQ(foreign.error().code, ErrorCode::permission_denied);
}

TEST_F(ClusterFolder, loses_what_a_driver_left_that_was_killed_while_it_wrote_after_an_hour) {
  {
    const auto published = publish(own_file());
  }
  write("a-1-1.cluster.unfinished", "troupe-clu");
  const fs::path old = write("b-1-1.cluster.unfinished", "troupe-clu");
  const std::array<timespec, 2> past{timespec{1'000'000'000, 0}, timespec{1'000'000'000, 0}};
  ASSERT_EQ(::utimensat(AT_FDCWD, old.c_str(), past.data(), 0), 0);
  EXPECT_THAT(found().problems, IsEmpty());
  EXPECT_FALSE(fs::exists(old));
  EXPECT_EQ(files(), 1U);
}

TEST_F(ClusterFolder, that_cannot_be_made_is_an_error_that_names_it) {
  const tests::TemporaryFolder root;
  const auto file = root.write("file", "");
  const auto published = PublishedCluster::publish(file.string() + "/clusters", own_file());
  ASSERT_FALSE(published.ok());
  EXPECT_THAT(published.error().message, HasSubstr(file.string()));
}

}  // namespace
}  // namespace troupe
