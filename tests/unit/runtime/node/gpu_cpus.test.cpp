#include "runtime/node/gpu_cpus.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/temporary_folder.hpp"

namespace troupe {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

/// A machine as its files describe it.
class GpuCpus : public testing::Test {
 protected:
  /// A GPU at a PCI address, with the number of its device file, near these CPUs.
  void add(const std::string& address, int minor, const std::string& cpus) const {
    namespace fs = std::filesystem;
    fs::create_directories(files_.gpus / address);
    fs::create_directories(files_.pci_devices / address);
    fs::create_directories(files_.device_files);
    write(files_.gpus / address / "information",
          "Model: \t\t A GPU\nIRQ:   \t\t 66\nDevice Minor: \t " + std::to_string(minor) +
              "\nGPU Excluded:\t No\n");
    write(files_.pci_devices / address / "local_cpulist", cpus + "\n");
    write(device_file(minor), "");
  }
  std::filesystem::path device_file(int minor) const {
    return files_.device_files / ("nvidia" + std::to_string(minor));
  }
  std::vector<int> near(std::string_view visible) const { return cpus_near_gpus(visible, files_); }

 private:
  static void write(const std::filesystem::path& path, const std::string& text) {
    std::ofstream(path) << text;
  }
  tests::TemporaryFolder folder_;

 protected:
  MachineFiles files_{folder_.path() / "gpus", folder_.path() / "dev", folder_.path() / "pci"};
};

TEST_F(GpuCpus, are_those_of_the_gpus_in_the_order_of_pci_addresses) {
  add("0000:9a:00.0", 0, "4-5");
  add("0000:19:00.0", 1, "0-1,8");
  EXPECT_THAT(near("0"), ElementsAre(0, 1, 8));
  EXPECT_THAT(near("1"), ElementsAre(4, 5));
  EXPECT_THAT(near("0,1"), ElementsAre(0, 1, 8, 4, 5));
  EXPECT_THAT(near("2"), IsEmpty());
}

TEST_F(GpuCpus, count_the_gpus_that_may_be_opened) {
  add("0000:19:00.0", 0, "0-1");
  add("0000:9a:00.0", 1, "4-5");
  std::filesystem::remove(device_file(0));  // as in a container that has the other one
  EXPECT_THAT(near("0"), ElementsAre(4, 5));
}

TEST_F(GpuCpus, are_not_known_without_gpus_or_for_names) {
  EXPECT_THAT(near("0"), IsEmpty());
  add("0000:19:00.0", 0, "0-1");
  EXPECT_THAT(near("GPU-8932f937"), IsEmpty());
  EXPECT_THAT(near(""), IsEmpty());
}

}  // namespace
}  // namespace troupe
